"""What only the controller does beside keeping the log: it watches the other brokers, and fences the silent.

When each was last heard is known in memory only (core/replication/lease.py). A new controller has heard nobody, so it
gives everybody a whole session before it takes anyone for dead; so does one that was itself stopped for a while. Only
its predecessor, which acted by a lease that is surely over, has no more than a moment to be heard.

Invariant: a broker is fenced only by a controller that holds its lease, and that did not hear it for a whole session or
knows that its process has ended.
Once a fence may be in the log, committed or not, the broker is told nothing that would renew its lease.
Driven by the cluster's front door (heartbeats), by quorum.py (roles, images), by absences.py and by its own timer.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from millpond.broker.drivers.metadata import MetadataLog
from millpond.core.metadata.commands import Command
from millpond.core.metadata.elections import fence_broker
from millpond.core.metadata.image import Image, apply_all
from millpond.core.raft.membership import AddLearner, RemoveNode
from millpond.core.replication.lease import Heard, Sessions
from millpond.model.errors import MillpondError

RETRY_SECONDS = 0.5
"""After a fence that could not be kept."""


class Pulse(Enum):
    ALIVE = "alive"
    REGISTER_AGAIN = "register again"
    NOT_CONTROLLER = "not controller"


_PULSES = {
    Heard.RENEWED: Pulse.ALIVE,
    Heard.STALE: Pulse.REGISTER_AGAIN,
    Heard.FENCED: Pulse.REGISTER_AGAIN,
    Heard.UNKNOWN: Pulse.NOT_CONTROLLER,
}


class Controller:
    def __init__(
        self,
        node_id: int,
        metadata: MetadataLog,
        *,
        session_ms: int,
        grace_ms: int,
        on_error: Callable[[BaseException], None],
    ) -> None:
        """`grace_ms` is what a new controller leaves its predecessor to be heard."""
        self._node_id = node_id
        self._metadata = metadata
        self._quorum = metadata.quorum
        self._session_ms = session_ms
        self._grace_ms = grace_ms
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._sessions: Sessions | None = None
        """None while this broker is not the controller."""
        self.known_gone: Callable[[], Mapping[int, int]] = dict
        """Brokers whose process has ended, with its epoch, for a new controller to begin with."""
        self._predecessor = (node_id, -1)
        """Who led last, but for this broker, and in which term."""
        self._fencing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._quorum.listen_to_roles(self._follow_role)
        self._quorum.listen(self._follow_image)

    def heartbeat(self, broker: int, *, epoch: int) -> Pulse:
        if self._sessions is None or not self._quorum.holds_lease():
            return Pulse.NOT_CONTROLLER
        heard = self._sessions.heard(broker, epoch=epoch, now=self._now_ms())
        if heard is Heard.RENEWED:
            self.welcome(broker)  # one that no longer votes still needs the log
        return _PULSES[heard]

    def welcome(self, broker: int) -> None:
        """Sends a broker the log from now on, if it is not a member yet. It counts for no majority."""
        if self._sessions is not None and broker not in self._quorum.raft.membership.nodes:
            self._quorum.change_membership(AddLearner(broker))

    def gone(self, broker: int, epoch: int) -> None:
        """The process that registered so has ended. Nothing where this broker is not the controller: whoever is learns
        it by itself."""
        if self._sessions is not None:
            self._sessions.gone(broker, epoch=epoch, now=self._now_ms())
            self._set_timer()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _follow_role(self) -> None:
        raft = self._quorum.raft
        if raft.leader not in (None, self._node_id):
            self._predecessor = (raft.leader, raft.term)
        if not self._quorum.is_controller:
            self._sessions = None
        elif self._sessions is None:
            now = self._now_ms()
            self._sessions = Sessions(
                _live(self._quorum.image), own=self._node_id, session_ms=self._session_ms, now=now
            )
            broker, term = self._predecessor
            before = raft.log.last_index_of_term_up_to(raft.term - 1, index=raft.log.last_index)
            last_term = raft.log.term_at(before) or 0
            self._sessions.expect_of_predecessor(
                broker, term=term, last_term=last_term, now=now, grace_ms=self._grace_ms
            )
            for gone, epoch in self.known_gone().items():
                self._sessions.gone(gone, epoch=epoch, now=now)
        self._set_timer()

    def _follow_image(self, before: Image, after: Image) -> None:
        if self._sessions is not None and before.brokers is not after.brokers:
            self._sessions.follow(_live(after), own=self._node_id, now=self._now_ms())
            self._set_timer()
            for broker in before.brokers.keys() - after.brokers.keys():
                if broker in self._quorum.raft.membership.learners:
                    self._loop.call_soon(self._quorum.change_membership, RemoveNode(broker))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._sessions.next_deadline() if self._sessions is not None and self._fencing is None else None
        if deadline is not None:
            at = max((deadline + 1) / 1000, self._loop.time())  # one more, so that it is surely past when it rings
            self._timer = self._loop.call_at(at, self._on_timer, at)

    def _on_timer(self, planned: float) -> None:
        self._timer = None
        assert self._sessions is not None
        if self._loop.time() - planned > self._session_ms / 2000:
            self._sessions.forgive(now=self._now_ms())
        elif due := self._sessions.due(self._now_ms()):
            self._fencing = self._loop.create_task(self._fence(self._sessions, due))
        self._set_timer()

    async def _fence(self, sessions: Sessions, due: list[tuple[int, int]]) -> None:
        def rule(image: Image) -> Sequence[Command]:
            commands: list[Command] = []
            if self._sessions is sessions and self._quorum.holds_lease():
                for broker, epoch in due:
                    commands += fence_broker(apply_all(commands, image), broker, epoch=epoch)
            return commands

        try:
            await self._metadata.submit_as_controller(rule)
        except MillpondError:
            await asyncio.sleep(RETRY_SECONDS)  # no majority, or no disk: tried again, if this is the controller still
        except Exception as error:
            self._on_error(error)
            await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._fencing = None
            self._set_timer()

    async def close(self) -> None:
        self._sessions = None
        self._set_timer()
        if self._fencing is not None:
            self._fencing.cancel()
            await asyncio.wait([self._fencing])


def _live(image: Image) -> dict[int, int]:
    return {each.broker: each.epoch for each in image.live_brokers()}
