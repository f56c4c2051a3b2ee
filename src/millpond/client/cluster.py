"""A client's side of a cluster: connections to its brokers, and what it knows of them.

    cluster = Cluster(settings)
    answer = await cluster.ask(DescribeClusterRequest(), DescribeClusterResponse)

Invariant: to each broker there is at most one connection for each purpose; whatever goes wrong on the way is a
`BrokerUnreachable`, and is tried again, elsewhere where that is possible, until the time for it is over.
Driven by producer.py, consumer.py and admin.py; runs on any asyncio loop, the simulator's among them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from enum import Enum
from typing import TypeVar

from millpond.client.connection import BrokerConnection
from millpond.client.refusals import RETRIED_CODES, refusal
from millpond.client.settings import ClientSettings
from millpond.client.view import ClusterView, Topic
from millpond.model.addresses import Address
from millpond.model.errors import BrokerUnreachable, ClientClosed, CoordinatorUnavailable, MillpondError
from millpond.model.ids import TopicPartition
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

Response = TypeVar("Response", bound=Message)
Result = TypeVar("Result")


class Purpose(Enum):
    """Answers come in order, so what may wait long has a connection of its own."""

    DATA = "data"
    CONTROL = "control"


class Cluster:
    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.view = ClusterView()
        self._loop = asyncio.get_running_loop()
        self._open: dict[tuple[int, Purpose], BrokerConnection] = {}
        self._opening: dict[tuple[int, Purpose], asyncio.Task[BrokerConnection]] = {}
        self._any: BrokerConnection | None = None
        """To one of the brokers that were named, until their ids are known."""
        self._refreshing: dict[frozenset[str] | None, asyncio.Task[dict[str, int]]] = {}
        self._coordinators: dict[str, int] = {}
        self._is_closed = False

    async def start(self) -> None:
        """Finds the cluster, or raises `BrokerUnreachable`; a broker that is starting is waited for a little."""
        await self.retrying(self.refresh, seconds_max=self.settings.connect_seconds_max)

    # Connections

    def ready(self, node: int, purpose: Purpose) -> BrokerConnection | None:
        """The connection there is, if there is one."""
        connection = self._open.get((node, purpose))
        return connection if connection is not None and connection.is_open else None

    async def connection(self, node: int, purpose: Purpose) -> BrokerConnection:
        self._check_open()
        connection = self.ready(node, purpose)
        if connection is not None:
            return connection
        key = (node, purpose)
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = self._loop.create_task(self._connect(node, purpose))
        return await asyncio.shield(opening)

    async def _connect(self, node: int, purpose: Purpose) -> BrokerConnection:
        try:
            address = self.view.brokers.get(node)
            if address is None:
                raise BrokerUnreachable(f"it is not known where broker {node} is")
            connection = await self._dial(address)
            self._open[node, purpose] = connection
            return connection
        finally:
            del self._opening[node, purpose]

    async def _dial(self, address: Address) -> BrokerConnection:
        return await BrokerConnection.open(
            address, client_id=self.settings.client_id, seconds_max=self.settings.connect_seconds_max
        )

    async def _anybody(self, avoid: Collection[Address] = ()) -> BrokerConnection:
        """Whoever can be had fastest: a connection that is open, then brokers that are known, then those named."""
        self._check_open()
        candidates = [each for (_, purpose), each in self._open.items() if purpose is Purpose.CONTROL]
        for connection in (*candidates, self._any):
            if connection is not None and connection.is_open and connection.address not in avoid:
                return connection
        problems: list[str] = []
        nodes = {address: node for node, address in self.view.brokers.items()}
        for address in self._shuffled([*nodes, *(each for each in self.settings.bootstrap if each not in nodes)]):
            if address in avoid:
                continue
            try:
                if address in nodes:
                    return await self.connection(nodes[address], Purpose.CONTROL)
                return await self._dial_any(address, avoid)
            except BrokerUnreachable as error:
                problems.append(str(error))
        raise BrokerUnreachable("; ".join(problems) or "no other broker is known")

    async def _dial_any(self, address: Address, avoid: Collection[Address]) -> BrokerConnection:
        """Of callers at once, the first to get through keeps its connection for all."""
        dialled = await self._dial(address)
        other = self._any
        if other is not None and other.is_open and other.address not in avoid:
            dialled.close()
            return other
        self._any = dialled
        return dialled

    def _shuffled(self, addresses: list[Address]) -> list[Address]:
        start = self.settings.rng.randrange(0, len(addresses)) if addresses else 0
        return addresses[start:] + addresses[:start]

    # Asking

    async def ask(self, request: Message, response_class: type[Response], *, node: int | None = None) -> Response:
        """One try, of one broker: `node`, or any."""
        connection = await (self._anybody() if node is None else self.connection(node, Purpose.CONTROL))
        return await connection.ask(request, response_class, seconds_max=self.settings.request_seconds_max)

    async def retrying(
        self,
        work: Callable[[], Awaitable[Result]],
        *,
        seconds_max: float | None = None,
        final: type[MillpondError] | None = None,
    ) -> Result:
        """Calls `work` until it does not fail, or fails with what no second try can better, or the time is over."""
        patience = self.settings.retry_seconds_max if seconds_max is None else seconds_max
        until = self._loop.time() + patience
        failures = 0
        while True:
            try:
                return await work()
            except MillpondError as error:
                failures += 1
                pause = self.settings.backoff.pause(failures, self.settings.rng)
                hopeless = not error.retriable or (final is not None and isinstance(error, final))
                if hopeless or self._is_closed or self._loop.time() + pause > until:
                    raise
            await asyncio.sleep(pause)

    # Metadata

    async def refresh(self, topics: Iterable[str] | None = (), *, create: bool = False) -> dict[str, int]:
        """Asks for these topics, or None for all; the error codes of those that have one. Callers at once share one."""
        wanted = None if topics is None else frozenset(topics)
        running = self._refreshing.get(wanted)
        if running is None:
            running = self._refreshing[wanted] = self._loop.create_task(self._refresh(wanted, create=create))
        return await asyncio.shield(running)

    async def _refresh(self, topics: frozenset[str] | None, *, create: bool) -> dict[str, int]:
        asked = None if topics is None else [MetadataRequestTopic(name=each) for each in sorted(topics)]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
        tried: set[Address] = set()
        try:
            while True:
                connection = await self._anybody(tried)
                try:
                    answer = await connection.ask(
                        request, MetadataResponse, seconds_max=self.settings.connect_seconds_max
                    )
                except BrokerUnreachable:
                    tried.add(connection.address)
                    continue
                return self.view.apply(answer)
        finally:
            self._refreshing.pop(topics, None)

    async def topic(self, name: str, *, create: bool = False) -> Topic:
        """As it is known, or is found out now."""
        known = self.view.topics.get(name)
        if known is not None and known.partitions:
            return known

        async def look() -> Topic:
            refused = await self.refresh([name], create=create)
            code = refused.get(name, 0)
            if code:
                raise refusal(code, None, of=f"topic {name}")
            return self.view.topics[name]

        return await self.retrying(look, seconds_max=self.settings.metadata_seconds_max)

    def forget_leader(self, at: TopicPartition, node: int) -> None:
        self.view.forget_leader(at, node)

    # Coordinators

    async def ask_coordinator(self, group: str, request: Message, response_class: type[Response]) -> Response:
        """One try. Whoever reads NOT_COORDINATOR in the answer calls `forget_coordinator`."""
        node = await self.coordinator(group)
        try:
            return await self.ask(request, response_class, node=node)
        except BrokerUnreachable:
            self.forget_coordinator(group)
            raise

    async def coordinator(self, group: str) -> int:
        known = self._coordinators.get(group)
        if known is not None:
            return known
        if not self.view.brokers:
            await self.refresh()
        request = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[group])
        answer = await self.ask(request, FindCoordinatorResponse)
        if answer.coordinators:
            found = answer.coordinators[0]
            code, reason, node, address = found.error_code, found.error_message, found.node_id, found
        else:
            code, reason, node, address = answer.error_code, answer.error_message, answer.node_id, answer  # type: ignore[assignment]
        if code in RETRIED_CODES:
            raise CoordinatorUnavailable(f"group {group}: {reason or 'its coordinator is not known yet'}")
        if code:
            raise refusal(code, reason, of=f"group {group}")
        self.view.brokers.setdefault(node, Address(address.host, address.port))
        self._coordinators[group] = node
        return node

    def forget_coordinator(self, group: str) -> None:
        self._coordinators.pop(group, None)

    # The end

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("this client is closed; make a new one")

    async def close(self) -> None:
        self._is_closed = True
        tasks = [*self._opening.values(), *self._refreshing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in (*self._open.values(), *([self._any] if self._any else [])):
            connection.close()
        # An aborted transport closes its socket in the next turn of the loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
