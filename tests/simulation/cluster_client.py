"""A client of several brokers: finds leaders by Metadata and coordinators by FindCoordinator, and looks again when one
turns out to be another.

It asks once. Whatever means "not there, not now, perhaps done" becomes `Unanswered`, and what was known of the place is
forgotten, so that the caller's next try looks first. Driven by replicated_world.py.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from millpond.protocol.messages.join_group import JoinGroupResponse
from tests.simulation.wire_client import LOOK_AGAIN, Fetched, Membership, Refused, Unanswered, WireClient

Address = tuple[str, int]
Place = tuple[str, int] | str
"""A partition, or a group."""
T = TypeVar("T")


class ClusterClient:
    def __init__(self, bootstrap: Sequence[Address], *, client_id: str, rng: random.Random) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._rng = rng
        self._wires: dict[Address, WireClient] = {}
        self._known: dict[Place, Address] = {}

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def address_of(self, topic: str, partition: int) -> Address | None:
        """Where it was found last."""
        return self._known.get((topic, partition))

    def forget(self, topic: str, partition: int) -> None:
        self._known.pop((topic, partition), None)

    async def wire_to(self, topic: str, partition: int) -> WireClient:
        """The connection to a partition's leader, for whoever has more than one request under way there."""
        return self._wire(await self._address((topic, partition)))

    # Anybody can answer these

    async def create_topic(self, name: str, *, partitions: int, configs: dict[str, str], replicas: int) -> int:
        code = await self._somewhere(
            lambda wire: wire.create_topic(name, partitions=partitions, configs=configs, replicas=replicas)
        )
        if code in LOOK_AGAIN:
            raise Unanswered(LOOK_AGAIN[code])
        return code

    async def producer_id(self) -> int:
        return await self._somewhere(lambda wire: wire.producer_id())

    # Only the leader can answer these

    async def produce(self, topic: str, partition: int, batch: bytes, *, acks: int = -1) -> int:
        return await self._at((topic, partition), lambda wire: wire.produce(topic, partition, batch, acks=acks))

    async def fetch(self, topic: str, partition: int, *, start: int, bytes_max: int, wait_ms: int) -> Fetched:
        return await self._at(
            (topic, partition),
            lambda wire: wire.fetch(topic, partition, start=start, bytes_max=bytes_max, wait_ms=wait_ms),
        )

    async def end_offset(self, topic: str, partition: int) -> int:
        return await self._at((topic, partition), lambda wire: wire.end_offset(topic, partition))

    # Only the coordinator can answer these

    async def join(self, group: str, topic: str, member_id: str) -> JoinGroupResponse:
        return await self._at(group, lambda wire: wire.join(group, topic, member_id))

    async def sync(self, group: str, topic: str, joined: JoinGroupResponse, partitions: tuple[int, ...]) -> Membership:
        return await self._at(group, lambda wire: wire.sync(group, topic, joined, partitions))

    async def heartbeat(self, member: Membership) -> None:
        await self._at(member.group, lambda wire: wire.heartbeat(member))

    async def leave(self, member: Membership) -> None:
        await self._at(member.group, lambda wire: wire.leave(member))

    async def commit(self, member: Membership, topic: str, partition: int, *, offset: int, note: str) -> None:
        await self._at(member.group, lambda wire: wire.commit(member, topic, partition, offset=offset, note=note))

    async def committed(self, group: str, topic: str, partition: int) -> tuple[int, str]:
        return await self._at(group, lambda wire: wire.committed(group, topic, partition))

    # Finding them

    async def _at(self, place: Place, ask: Callable[[WireClient], Awaitable[T]]) -> T:
        address = await self._address(place)
        try:
            return await self._ask(address, ask)
        except Unanswered:
            self._known.pop(place, None)
            raise

    async def _address(self, place: Place) -> Address:
        address = self._known.get(place)
        if address is None:
            address = self._known[place] = await self._somewhere(lambda wire: self._find(wire, place))
        return address

    def _wire(self, address: Address) -> WireClient:
        if address not in self._wires:
            host, port = address
            self._wires[address] = WireClient(host=host, port=port, client_id=self._client_id, rng=self._rng)
        return self._wires[address]

    async def _find(self, wire: WireClient, place: Place) -> Address:
        if isinstance(place, str):
            return await wire.coordinator(place)
        topic, partition = place
        found = (await wire.leaders(topic)).get(partition)
        if found is None:
            raise Unanswered(f"{topic}-{partition} has no leader")
        return found

    async def _somewhere(self, ask: Callable[[WireClient], Awaitable[T]]) -> T:
        return await self._ask(self._rng.choice(self._bootstrap), ask)

    async def _ask(self, address: Address, ask: Callable[[WireClient], Awaitable[T]]) -> T:
        try:
            return await ask(self._wire(address))
        except Refused as refusal:
            if refusal.code in LOOK_AGAIN:
                raise Unanswered(LOOK_AGAIN[refusal.code]) from refusal
            raise
