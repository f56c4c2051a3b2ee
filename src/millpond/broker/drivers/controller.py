"""What only the controller does beside keeping the log: it watches the other brokers, and fences the silent.

When each was last heard is known in memory only. A new controller has heard nobody, so it gives everybody a whole
session before it takes anyone for dead; so does one that was itself stopped for a while.

Invariant: a broker is fenced only by a controller that holds its lease, and that did not hear it for a whole session.
Once a fence is in the log, committed or not, the broker is told nothing that would renew its lease.
Driven by the cluster's front door (heartbeats), by quorum.py (roles, images) and by its own timer.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum

from millpond.broker.drivers.metadata import MetadataLog
from millpond.core.metadata.commands import Command
from millpond.core.metadata.elections import fence_broker
from millpond.core.metadata.image import Image
from millpond.model.errors import MillpondError


class Pulse(Enum):
    ALIVE = "alive"
    REGISTER_AGAIN = "register again"
    NOT_CONTROLLER = "not controller"


class Controller:
    def __init__(
        self,
        node_id: int,
        metadata: MetadataLog,
        *,
        session_seconds: float,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._quorum = metadata.quorum
        self._session_seconds = session_seconds
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._heard_at: dict[int, float] = {}
        """Of the live brokers but this one; empty while this broker is not the controller."""
        self._is_watching = False
        self._fencing: dict[int, asyncio.Task[None]] = {}
        self._doomed: set[int] = set()
        """Those whose fence may be in the log; it may take effect at any time."""
        self._timer: asyncio.TimerHandle | None = None
        self._quorum.listen_to_roles(self._follow_role)
        self._quorum.listen(self._follow_image)

    def heartbeat(self, broker: int, *, epoch: int) -> Pulse:
        if not self._is_watching or not self._quorum.holds_lease():
            return Pulse.NOT_CONTROLLER
        known = self._quorum.image.brokers.get(broker)
        if known is None or known.fenced or known.epoch != epoch:
            return Pulse.REGISTER_AGAIN
        if broker in self._doomed:
            return Pulse.NOT_CONTROLLER
        self._heard_at[broker] = self._loop.time()
        return Pulse.ALIVE

    def _follow_role(self) -> None:
        if self._quorum.is_controller and not self._is_watching:
            self._is_watching = True
            self._forgive()
        elif not self._quorum.is_controller:
            self._is_watching = False
            self._heard_at.clear()
            self._doomed.clear()
            self._set_timer()

    def _forgive(self) -> None:
        """Everybody has a whole session from now on."""
        now = self._loop.time()
        live = self._quorum.image.live_brokers()
        self._heard_at = {each.broker: now for each in live if each.broker != self._node_id}
        self._set_timer()

    def _follow_image(self, before: Image, after: Image) -> None:
        if not self._is_watching or before.brokers is after.brokers:
            return
        for broker, known in after.brokers.items():
            if known != before.brokers.get(broker):
                self._doomed.discard(broker)
            if known.fenced:
                self._heard_at.pop(broker, None)
            elif known != before.brokers.get(broker) and broker != self._node_id:
                self._heard_at[broker] = self._loop.time()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [heard_at for broker, heard_at in self._heard_at.items() if broker not in self._fencing]
        if waiting:
            at = min(waiting) + self._session_seconds
            self._timer = self._loop.call_at(max(at, self._loop.time()), self._on_timer, at)

    def _on_timer(self, planned: float) -> None:
        self._timer = None
        if self._loop.time() - planned > self._session_seconds / 2:
            self._forgive()  # it was this broker that was stopped; what others said meanwhile is not read yet
            return
        for broker in [each for each in self._heard_at if self._is_silent(each) and each not in self._fencing]:
            task = self._loop.create_task(self._fence(broker))
            self._fencing[broker] = task
        self._set_timer()

    def _is_silent(self, broker: int) -> bool:
        heard_at = self._heard_at.get(broker)
        return heard_at is not None and heard_at + self._session_seconds <= self._loop.time()

    async def _fence(self, broker: int) -> None:
        def rule(image: Image) -> Sequence[Command]:
            may_fence = self._is_watching and self._quorum.holds_lease() and self._is_silent(broker)
            commands = fence_broker(image, broker) if may_fence else ()
            if commands:
                self._doomed.add(broker)
            else:
                self._doomed.discard(broker)  # the last one was refused for a newer change, which is here by now
            return commands

        try:
            await self._metadata.submit_as_controller(rule)
        except MillpondError:
            pass  # no majority, or no disk: whoever is the controller next begins to count again
        except Exception as error:
            self._on_error(error)
        finally:
            self._fencing.pop(broker, None)
            if broker in self._heard_at and self._is_silent(broker):
                self._heard_at[broker] = self._loop.time() - self._session_seconds / 2
            self._set_timer()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._fencing.values()):
            task.cancel()
            await asyncio.wait([task])
