"""The cluster's metadata as this broker sees it, and the one way to change it: decide on an image, compare and set.

A rule looks at this broker's image and says what to do. The controller takes that into its log only if no other change
came in between; otherwise the rule looks again, at the newer image. So every rule stays a pure function of an image,
whichever broker runs it, and nothing is ever applied to another image than it was decided on.

Invariant: when `decide` returns, its decision is kept by a majority, and this broker's image shows it. A change whose
answer was lost is known again by its id, and never made twice. Whoever holds an image sees one moment.
Driven by the operations; quorum.py does the keeping.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from millpond.broker.drivers.quorum import Accepted, Conflict, Listener, NotController, Outcome, Quorum, Unheard
from millpond.core.metadata.agreed import allowed_unclean
from millpond.core.metadata.changes import CHANGE_ID_BYTES, Change
from millpond.core.metadata.commands import Command
from millpond.core.metadata.decisions import Decision
from millpond.core.metadata.elections import unclean
from millpond.core.metadata.image import Image
from millpond.core.raft.membership import PromoteLearner, RemoveNode
from millpond.core.raft.output import Reason, Role
from millpond.model.errors import ControllerUnavailable, InvalidRequest
from millpond.model.ids import TopicPartition
from millpond.model.ports import Rng
from millpond.model.values import dataclass

PATIENCE_SECONDS = 30.0
"""How long a change may look for a controller, and wait for a majority."""
CATCH_UP_SECONDS = 1.0
PAUSE_SECONDS_MAX = 0.2

Answer = TypeVar("Answer")
Ask = Callable[[int, Change, float], Awaitable[Outcome]]
"""Hands a change to the controller on another broker, and gives up at a time; raises nothing."""
AskMembers = Callable[[int, PromoteLearner | RemoveNode, float], Awaitable[Reason | None]]
"""The same for a change of who votes; says why not."""

_FINAL = (Reason.NO_SUCH_NODE, Reason.LAST_VOTER, Reason.TOO_MANY_MEMBERS)


async def ask_nobody(controller: int, change: Change, until: float) -> Outcome:
    """For a broker that is alone."""
    return NotController(None)


async def change_nothing(controller: int, change: PromoteLearner | RemoveNode, until: float) -> Reason | None:
    """For a broker that is alone."""
    return Reason.NO_SUCH_NODE


def _say_nothing(of: object) -> None:
    pass


@dataclass(slots=True)
class _Attempt(Generic[Answer]):
    change: Change
    decision: Decision[Answer]
    image: Image


class MetadataLog:
    def __init__(
        self, quorum: Quorum, rng: Rng, *, ask: Ask = ask_nobody, ask_members: AskMembers = change_nothing
    ) -> None:
        self.quorum = quorum
        self._rng = rng
        self._ask = ask
        self._ask_members = ask_members
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()
        self.on_unclean: Callable[[list[TopicPartition]], None] = _say_nothing
        """Told of partitions whose new leader, by a decision made here, may lack records that were acknowledged."""
        self.on_unclean_allowed: Callable[[list[str]], None] = _say_nothing
        """Told of topics of which somebody has asked here that they may have such leaders."""

    @property
    def image(self) -> Image:
        return self.quorum.image

    def listen(self, listener: Listener) -> None:
        self.quorum.listen(listener)

    async def decide(self, rule: Callable[[Image], Decision[Answer]]) -> Decision[Answer]:
        """Lets a rule look at the newest image and say what to do; returns when that is done.

        The rule may be asked several times. A change once begun is finished, whoever stops waiting for it.
        """
        return await self._shielded(rule, here=False)

    async def _shielded(self, rule: Callable[[Image], Decision[Answer]], *, here: bool) -> Decision[Answer]:
        if self.quorum.trouble is not None:
            raise self.quorum.trouble
        change = self._loop.create_task(self._decide(rule, here=here))
        self._changes.add(change)
        change.add_done_callback(self._ended)
        return await asyncio.shield(change)

    async def submit_as_controller(self, rule: Callable[[Image], Sequence[Command]]) -> None:
        """The same, but only as long as this broker is the controller: nobody else is asked, and the rule is asked anew
        each time, in the same step in which what it says goes into the log."""
        await self._shielded(lambda image: Decision(tuple(rule(image)), ()), here=True)

    def _ended(self, change: asyncio.Task[Any]) -> None:
        self._changes.discard(change)
        if not change.cancelled():
            change.exception()  # nobody else may be left to look at it

    async def submit(self, rule: Callable[[Image], Sequence[Command]]) -> None:
        """The same for commands that need no answers."""
        await self.decide(lambda image: Decision(tuple(rule(image)), ()))

    async def _decide(self, rule: Callable[[Image], Decision[Answer]], *, here: bool) -> Decision[Answer]:
        async with self._turn:
            attempts: list[_Attempt[Answer]] = []
            try:
                return await self._decide_in_turn(rule, attempts, here=here)
            finally:
                for each in attempts:
                    self.quorum.unwatch(each.change.change_id)

    async def _decide_in_turn(
        self, rule: Callable[[Image], Decision[Answer]], attempts: list[_Attempt[Answer]], *, here: bool
    ) -> Decision[Answer]:
        quorum, until = self.quorum, self._loop.time() + PATIENCE_SECONDS
        restores, in_doubt = quorum.restores, False
        while True:
            quorum.require_open()
            if here or not attempts or attempts[-1].change.base != quorum.data_index:
                if in_doubt and quorum.restores != restores:
                    raise ControllerUnavailable("it is not known whether a change that was sent was kept; look first")
                attempts.append(self._attempt(rule))
            attempt = attempts[-1]
            if not in_doubt:
                restores = quorum.restores
            outcome = await self._propose(attempt.change, until, here=here)
            in_doubt = in_doubt or isinstance(outcome, Accepted | Unheard)
            if isinstance(outcome, Accepted) and not attempt.change.commands:
                return attempt.decision
            await self._wait_for(outcome, until)
            for each in attempts:
                if quorum.is_applied(each.change.change_id):
                    if lost := unclean(each.image, each.decision.commands):
                        self.on_unclean(lost)
                    if allowed := allowed_unclean(each.image, each.decision.commands):
                        self.on_unclean_allowed(allowed)
                    return each.decision
            if self._loop.time() >= until:
                raise ControllerUnavailable(
                    f"no majority of the brokers answered within {PATIENCE_SECONDS:.0f} s; a change that was asked for "
                    "may come later, or not: look first, then ask again"
                )

    def _attempt(self, rule: Callable[[Image], Decision[Answer]]) -> _Attempt[Answer]:
        quorum = self.quorum
        decision = rule(quorum.image)
        change = Change(
            base=quorum.data_index,
            by=quorum.raft.node_id,
            change_id=self._rng.getrandbits(8 * CHANGE_ID_BYTES).to_bytes(CHANGE_ID_BYTES, "big"),
            commands=decision.commands,
        )
        quorum.watch(change.change_id)
        return _Attempt(change, decision, quorum.image)

    async def _propose(self, change: Change, until: float, *, here: bool) -> Outcome:
        outcome = self.quorum.propose(change)
        if here and isinstance(outcome, NotController):
            raise ControllerUnavailable("this broker is not the controller any more")
        if isinstance(outcome, NotController) and outcome.leader is not None:
            return await self._ask(outcome.leader, change, until)
        return outcome

    async def _wait_for(self, outcome: Outcome, until: float) -> None:
        """Until it is known what became of a change, or a newer image is here, or it is time to try again."""
        quorum, loop = self.quorum, self._loop
        match outcome:
            case Accepted(index, term):
                while quorum.applied_index < index and quorum.applied_term <= term and loop.time() < until:
                    quorum.require_open()
                    await quorum.wait_change(until)
            case Conflict(newest, term):
                until = min(until, loop.time() + CATCH_UP_SECONDS)
                while quorum.data_index < newest and quorum.applied_term <= term and loop.time() < until:
                    await quorum.wait_change(until)
            case NotController() | Unheard():
                pause = self._rng.uniform(PAUSE_SECONDS_MAX / 4, PAUSE_SECONDS_MAX)
                await quorum.wait_change(min(until, loop.time() + pause))

    async def change_members(self, change: PromoteLearner | RemoveNode) -> None:
        """Returns when a majority of those who vote then has kept it. Raises InvalidRequest where it cannot be."""
        quorum, until, has_begun = self.quorum, self._loop.time() + PATIENCE_SECONDS, False
        while not quorum.has_changed(change):
            quorum.require_open()
            if quorum.raft.role is Role.LEADER:
                refusal = quorum.change_membership(change)
            elif quorum.leader is not None:
                refusal = await self._ask_members(quorum.leader, change, until)
            else:
                refusal = Reason.NOT_LEADER
            has_begun = has_begun or refusal is None
            if refusal in _FINAL and not has_begun:  # else it is done where it was asked, and not seen here yet
                raise InvalidRequest(f"broker {change.node}: {refusal.value}")
            if self._loop.time() >= until:
                raise ControllerUnavailable("the quorum has not changed in time; it may yet: look first")
            await quorum.wait_change(self._loop.time() + PAUSE_SECONDS_MAX)

    async def wait_progress(self) -> None:
        """Returns at the next change of the image or of roles, or after a while; raises where there can be none."""
        self.quorum.require_open()
        await self.quorum.wait_change(self._loop.time() + CATCH_UP_SECONDS)

    async def close(self) -> None:
        if self._changes and self.quorum.is_controller:
            await asyncio.wait(self._changes, timeout=CATCH_UP_SECONDS)
        await self.quorum.close()
        if self._changes:
            await asyncio.wait(self._changes)
