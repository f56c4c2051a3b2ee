"""Three members read six partitions while messages flow; one leaves, then one joins. Whatever client they are of.

Nothing acknowledged may be lost, and only what a member had read and not committed may be read twice.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.interop.confluent import Reachable
from tests.interop.flowing_group import ASSIGNED, LOST, REVOKED, Flow, Move, Story, seconds_until_shared, wait_read

PARTITIONS = 6


class Leaver(Protocol):
    def leave(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Change:
    """One member less, or one more."""

    seconds: float
    before: dict[int, str]
    after: dict[int, str]
    moves: list[Move]

    def check_only_what_moves_is_touched(self, *, leaver: str | None = None) -> None:
        """Not so where members give everything up at each rebalance."""
        moved = {partition for partition in self.before if self.before[partition] != self.after[partition]}
        assert len(moved) == 2, "no more moves than balance asks for"
        revoked = {(move.member, move.partition) for move in self.moves if move.kind == REVOKED}
        assert revoked == {(self.before[partition], partition) for partition in moved}
        assigned = {(move.member, move.partition) for move in self.moves if move.kind == ASSIGNED}
        assert assigned == {(self.after[partition], partition) for partition in moved}
        if leaver is not None:
            assert {member for member, _ in revoked} == {leaver}


@dataclass(frozen=True, slots=True)
class ComingsAndGoings:
    formed_s: float
    left: Change
    joined: Change
    messages: int
    read_twice: int
    refusals: dict[str, int]

    def figures(self) -> str:
        return (
            f"formed in {self.formed_s:.2f} s, one left in {self.left.seconds:.2f} s, one joined in "
            f"{self.joined.seconds:.2f} s; {self.messages} messages, {self.read_twice} of them read twice, "
            f"commits refused meanwhile: {self.refusals}"
        )


def come_and_go(broker: Reachable, topic: str, join: Callable[[str, Story], Leaver]) -> ComingsAndGoings:
    """`topic` has six partitions; `join` makes a member of the given name."""
    story = Story()
    flow = Flow(broker, topic, partitions=PARTITIONS)
    members: dict[str, Leaver] = {}

    def change(act: Callable[[], None], wanted: dict[str, int]) -> Change:
        before, known, began = story.owners(), len(story.moves), time.monotonic()
        act()
        seconds = seconds_until_shared(story, wanted, began=began)
        return Change(seconds, before, story.owners(), story.moves[known:])

    def add(*names: str) -> None:
        for name in names:
            members[name] = join(name, story)

    try:
        formed = change(lambda: add("ada", "bea", "cy"), {"ada": 2, "bea": 2, "cy": 2})
        left = change(lambda: members.pop("cy").leave(), {"ada": 3, "bea": 3})
        joined = change(lambda: add("dan"), {"ada": 2, "bea": 2, "dan": 2})
        flow.stop()
        wait_read(story, flow)
        moves = list(story.moves)
    finally:
        flow.stop()
        for member in members.values():
            member.leave()
    assert flow.errors == story.errors == []
    assert set(story.read) == set(flow.acknowledged)
    assert {value for value, times in story.read.items() if times > 1} <= story.uncommitted
    # Not in the farewell: Java's client calls lost what it has when it is closed while others are joining anew.
    assert not [move for move in moves if move.kind == LOST]
    twice = story.read.total() - len(story.read)
    return ComingsAndGoings(formed.seconds, left, joined, len(flow.acknowledged), twice, dict(story.refusals))
