"""This broker's life in its cluster: it registers, tells the controller that it is alive, and knows how long it counts.

Invariant: while `holds_lease`, no controller has taken this broker for dead (core/replication/lease.py). Whoever leads
the quorum has only the lease that its followers gave it: what it got from a controller before is given up, so that the
next one need not wait for it.
Driven by app, which starts and cancels it, and by quorum.py (roles).
"""

import asyncio
from collections.abc import Callable, Collection, Sequence

from millpond.broker.drivers.links import Links
from millpond.broker.drivers.metadata import MetadataLog
from millpond.core.metadata.commands import Command, Endpoint
from millpond.core.metadata.elections import hand_over, register_broker
from millpond.core.metadata.image import Image
from millpond.core.metadata.partition_changes import partitions_of
from millpond.core.raft.output import Role
from millpond.core.replication.lease import Lease
from millpond.model.errors import MillpondError
from millpond.protocol.messages.broker_heartbeat import ALIVE, REGISTER_AGAIN

RETRY_SHARE = 0.25
"""Of the heartbeat interval: how long to wait after a heartbeat that was not answered."""
HAND_OVER_SECONDS = 5.0
"""How long a broker that stops waits for others to take over, at most."""
TRANSFER_SECONDS = 1.5
LOOK_SECONDS = 0.1


class BrokerLife:
    def __init__(
        self,
        node_id: int,
        metadata: MetadataLog,
        links: Links | None,
        *,
        directory_id: bytes,
        life: bytes,
        rack: str | None,
        heartbeat_seconds: float,
        session_ms: int,
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Without links, for a broker that is alone: it only registers. `life` is another one in every process."""
        self._node_id = node_id
        self._metadata = metadata
        self._quorum = metadata.quorum
        self._links = links
        self._heartbeat_seconds = heartbeat_seconds
        self._session_seconds = session_ms / 1000
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._endpoints: tuple[Endpoint, ...] = ()
        self._doubtful: Collection[tuple[bytes, int]] = ()
        self._lease = Lease(session_ms=session_ms)
        self._roles_changed = asyncio.Event()
        self._led_at = self._loop.time()
        """When a controller last answered it: one that is only believed in may have gone, untold."""
        self._directory_id = directory_id
        self._life = life
        self._rack = rack
        self._is_handing_over = False
        self.epoch = -1
        """Of this registration."""
        self._quorum.listen_to_roles(self._follow_role)

    def _follow_role(self) -> None:
        if self._quorum.raft.role is Role.LEADER:
            self._lease.give_up()
        self._roles_changed.set()

    def holds_lease(self) -> bool:
        """Never where this broker has been fenced, even if it is the controller by now."""
        if self._is_handing_over or not self._is_registered():
            return False
        return self._lease.is_valid(self._now_ms()) or self._quorum.holds_lease()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _is_registered(self) -> bool:
        known = self._metadata.image.brokers.get(self._node_id)
        return known is not None and not known.fenced and known.epoch == self.epoch

    async def register(self, endpoints: tuple[Endpoint, ...], *, doubtful: Collection[tuple[bytes, int]] = ()) -> None:
        """Returns when a majority knows that this broker is up, and where.

        When it starts, `doubtful` are the partitions whose log may have lost its end with the last stop.
        """
        self._endpoints = endpoints
        self._doubtful = doubtful
        await self._metadata.submit(self._registration)
        self.epoch = self._metadata.image.brokers[self._node_id].epoch

    def _registration(self, image: Image) -> Sequence[Command]:
        return register_broker(
            image,
            self._node_id,
            endpoints=self._endpoints,
            rack=self._rack,
            directory_id=self._directory_id,
            life=self._life,
            doubtful=self._doubtful,
        )

    def is_present(self, image: Image) -> bool:
        """Whether it is one of this life of the broker. An earlier one is history, replayed while it starts."""
        known = image.brokers.get(self._node_id)
        return known is not None and known.life == self._life

    # Going

    async def hand_over(self) -> None:
        """Before it stops: others lead what they can, and nobody waits for this broker any more. Returns when that is
        so, or after a while: what is left then ends with this broker's session."""
        if not self._others_stay(self._metadata.image) or not self._is_registered():
            return
        # From here on it leads nothing: whoever takes over begins at once, and must not be contradicted.
        self._is_handing_over = True
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                await self._hand_over_quorum()
                while True:
                    await self._metadata.submit(lambda image: hand_over(image, self._node_id))
                    if not self._is_needed(self._metadata.image):
                        return
                    await self._quorum.wait_change(self._loop.time() + LOOK_SECONDS)
        except (TimeoutError, MillpondError):
            return

    async def _hand_over_quorum(self) -> None:
        until = self._loop.time() + TRANSFER_SECONDS
        while self._quorum.raft.role is Role.LEADER and self._loop.time() < until and self._quorum.transfer():
            await self._quorum.wait_change(self._loop.time() + LOOK_SECONDS)

    def _others_stay(self, image: Image) -> bool:
        return any(each.broker != self._node_id for each in image.staying_brokers())

    def _is_needed(self, image: Image) -> bool:
        """Whether it leads anything that another could lead, once that has caught up."""
        return self._others_stay(image) and any(
            partition.leader == self._node_id
            and any(other != self._node_id and image.is_staying(other) for other in partition.replicas)
            for _, _, partition in partitions_of(image)
        )

    def retire(self) -> None:
        """Before the broker listens no more, from when on others may take it for gone: it acts by no lease then."""
        self._is_handing_over = True
        self._quorum.retire()

    # Staying

    async def run(self) -> None:
        assert self._links is not None
        while True:
            try:
                is_known = await self._beat(self._links)
            except MillpondError:
                is_known = False  # no majority, or no disk, or not a member any more: tried again
                await self._ask_for_the_log(self._links)
            except Exception as error:
                self._on_error(error)
                is_known = False
            await self._pause(self._heartbeat_seconds * (1 if is_known else RETRY_SHARE))

    async def _pause(self, seconds: float) -> None:
        """Or until there may be another controller, who has not heard of this broker yet."""
        self._roles_changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._roles_changed.wait()
        except TimeoutError:
            pass

    def _is_member(self) -> bool:
        """As far as it has heard: nobody sends a broker the entry that takes it out of the quorum."""
        return self._node_id in self._quorum.raft.membership.nodes

    def _address(self) -> tuple[str, int]:
        return self._endpoints[0].host, self._endpoints[0].port

    async def _ask_for_the_log(self, links: Links) -> None:
        """A broker that was taken out of the quorum is told of nothing any more, until it is sent the log again. Also
        those that it takes for dead are asked: it has not heard for long, and one of them may be the controller."""
        others = [each for each in self._metadata.image.brokers if each != self._node_id]
        await links.introduce(others, self._address())

    async def _tell_the_silent(self, links: Links) -> None:
        """As the controller: a member that is not there, or starts, may not know where this broker is, and could answer
        nothing that it is sent."""
        image, members = self._metadata.image, self._quorum.raft.membership.nodes
        silent = [each for each in members if each != self._node_id and not image.is_live(each)]
        if silent:
            await links.introduce(silent, self._address())

    async def _beat(self, links: Links) -> bool:
        """Whether the controller knows that this broker is alive."""
        if not self._is_registered() and self._quorum.leader is not None:
            await self.register(self._endpoints)
        if self._quorum.is_controller:
            self._led_at = self._loop.time()
            await self._tell_the_silent(links)
            return True
        if not self._is_member() or self._loop.time() - self._led_at > self._session_seconds:
            await self._ask_for_the_log(links)  # may take a while, where one of them does not answer
        controller, term, sent_at = self._quorum.leader, self._quorum.raft.term, self._loop.time()
        if controller is None or controller == self._node_id:
            return False
        until = sent_at + self._session_seconds / 2
        answer = await links.heartbeat(controller, broker_epoch=self.epoch, until=until)
        if answer is None:
            return False
        if answer.outcome in (ALIVE, REGISTER_AGAIN):
            self._led_at = sent_at
        if answer.outcome == REGISTER_AGAIN:
            self._lease.give_up()
            await self.register(self._endpoints)
        elif answer.outcome == ALIVE and self._quorum.raft.term == term:  # else this one may have led meanwhile
            self._lease.renewed(sent_at=int(sent_at * 1000))
        return answer.outcome == ALIVE
