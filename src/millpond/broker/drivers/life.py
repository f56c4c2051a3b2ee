"""This broker's life in its cluster: it registers, tells the controller that it is alive, and knows how long it counts.

Invariant: while `holds_lease`, no controller has taken this broker for dead: the lease is shorter than the session, and
runs from the moment the heartbeat was *sent*. The controller's own lease is the one that its followers gave it.
Driven by app, which starts and cancels it.
"""

import asyncio
from collections.abc import Callable, Sequence

from millpond.broker.drivers.links import Links
from millpond.broker.drivers.metadata import MetadataLog
from millpond.core.metadata.commands import Command, Endpoint, RegisterBroker
from millpond.core.metadata.elections import register_broker
from millpond.core.metadata.image import Image
from millpond.model.errors import MillpondError
from millpond.protocol.messages.broker_heartbeat import ALIVE, REGISTER_AGAIN

RETRY_SHARE = 0.25
"""Of the heartbeat interval: how long to wait after a heartbeat that was not answered."""


class BrokerLife:
    def __init__(
        self,
        node_id: int,
        metadata: MetadataLog,
        links: Links | None,
        *,
        directory_id: bytes,
        rack: str | None = None,
        heartbeat_seconds: float,
        session_seconds: float,
        clock_drift_max: float,
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Without links, for a broker that is alone: it only registers."""
        self._node_id = node_id
        self._metadata = metadata
        self._quorum = metadata.quorum
        self._links = links
        self._heartbeat_seconds = heartbeat_seconds
        self._lease_seconds = session_seconds * (1 - clock_drift_max)
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._endpoints: tuple[Endpoint, ...] = ()
        self._lease_until = 0.0
        self._directory_id = directory_id
        self._rack = rack
        self._epochs: set[int] = set()
        """That this process has asked for; one of them is, or will be, the image's."""
        self.epoch = -1
        """Of this registration."""

    def lease_until(self) -> float:
        """By this loop's clock; 0 where this broker has been fenced, even if it is the controller by now."""
        if not self._is_registered():
            return 0.0
        own = self._quorum.lease_until()
        return self._lease_until if own is None else own

    def holds_lease(self) -> bool:
        return self._loop.time() < self.lease_until()

    def _is_registered(self) -> bool:
        known = self._metadata.image.brokers.get(self._node_id)
        return known is not None and not known.fenced and known.epoch == self.epoch

    async def register(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Returns when a majority knows that this broker is up, and where."""
        self._endpoints = endpoints
        await self._metadata.submit(self._registration)
        self.epoch = self._metadata.image.brokers[self._node_id].epoch

    def _registration(self, image: Image) -> Sequence[Command]:
        commands = register_broker(
            image,
            self._node_id,
            endpoints=self._endpoints,
            rack=self._rack,
            directory_id=self._directory_id,
        )
        self._epochs |= {each.epoch for each in commands if isinstance(each, RegisterBroker)}
        return commands

    def is_this_life(self, epoch: int) -> bool:
        """Whether it was this process that registered with the broker epoch."""
        return epoch in self._epochs

    async def run(self) -> None:
        assert self._links is not None
        while True:
            try:
                is_known = await self._beat(self._links)
            except MillpondError:
                is_known = False  # no majority, or no disk: tried again
            except Exception as error:
                self._on_error(error)
                is_known = False
            await asyncio.sleep(self._heartbeat_seconds * (1 if is_known else RETRY_SHARE))

    async def _beat(self, links: Links) -> bool:
        """Whether the controller knows that this broker is alive."""
        if not self._is_registered():
            await self.register(self._endpoints)
        if self._quorum.is_controller:
            return True
        controller, sent_at = self._quorum.leader, self._loop.time()
        if controller is None or controller == self._node_id:
            return False
        until = sent_at + self._lease_seconds / 2
        answer = await links.heartbeat(controller, broker_epoch=self.epoch, until=until)
        if answer is None:
            return False
        if answer.outcome == ALIVE:
            self._lease_until = max(self._lease_until, sent_at + self._lease_seconds)
        elif answer.outcome == REGISTER_AGAIN:
            await self.register(self._endpoints)
        return answer.outcome == ALIVE
