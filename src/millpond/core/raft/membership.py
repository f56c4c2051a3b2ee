"""Who belongs to the quorum, and how it changes: one node at a time, and a learner first.

Two memberships that differ by one voter cannot have majorities without a common node. That is the whole safety of a
change, so nothing here makes a bigger step.

A membership as bytes, big-endian, in log entries and snapshots:

    0  u8   version, 1
    1  u8   number of voters
    2  u8   number of learners
    3  i32  each voter, ascending; then each learner, ascending

Pure.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, TypeVar

from millpond.model.errors import MalformedMessage
from millpond.model.values import dataclass

MEMBERS_MAX: Final = 100
NODE_ID_MAX: Final = 2**31 - 1
_HEAD: Final = Struct(">BBB")
_VERSION: Final = 1

Value = TypeVar("Value", int, float)


@dataclass(frozen=True, slots=True)
class Membership:
    voters: tuple[int, ...]
    learners: tuple[int, ...] = ()
    """Are sent the log, and count for nothing."""

    def __post_init__(self) -> None:
        assert list(self.voters) == sorted(set(self.voters)), self.voters
        assert list(self.learners) == sorted(set(self.learners) - set(self.voters)), self.learners

    @property
    def nodes(self) -> tuple[int, ...]:
        return self.voters + self.learners

    def is_majority(self, nodes: set[int]) -> bool:
        return len(nodes.intersection(self.voters)) > len(self.voters) // 2

    def agreed(self, value_of: Callable[[int], Value]) -> Value:
        """The highest value that a majority has reached."""
        values = sorted(value_of(voter) for voter in self.voters)
        return values[(len(values) - 1) // 2]

    def with_learner(self, node: int) -> "Membership":
        return Membership(self.voters, tuple(sorted({*self.learners, node})))

    def with_voter(self, node: int) -> "Membership":
        return Membership(tuple(sorted({*self.voters, node})), tuple(each for each in self.learners if each != node))

    def without(self, node: int) -> "Membership":
        return Membership(
            tuple(each for each in self.voters if each != node), tuple(each for each in self.learners if each != node)
        )

    def to_bytes(self) -> bytes:
        head = _HEAD.pack(_VERSION, len(self.voters), len(self.learners))
        return head + b"".join(node.to_bytes(4, "big") for node in self.nodes)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Membership":
        if len(data) < _HEAD.size:
            raise MalformedMessage(f"a membership of {len(data)} bytes; at least {_HEAD.size} are needed")
        version, voters, learners = _HEAD.unpack_from(data)
        if version != _VERSION or voters + learners > MEMBERS_MAX:
            raise MalformedMessage(
                f"a membership of version {version} with {voters} voters and {learners} learners; "
                f"version {_VERSION} with at most {MEMBERS_MAX} nodes is known here"
            )
        if len(data) != _HEAD.size + 4 * (voters + learners):
            raise MalformedMessage(f"a membership of {len(data)} bytes says it has {voters + learners} nodes")
        nodes = [int.from_bytes(data[at : at + 4], "big") for at in range(_HEAD.size, len(data), 4)]
        if len(set(nodes)) != len(nodes) or any(node > NODE_ID_MAX for node in nodes):
            raise MalformedMessage(f"a membership names a node twice, or one above {NODE_ID_MAX}")
        if nodes[:voters] != sorted(nodes[:voters]) or nodes[voters:] != sorted(nodes[voters:]):
            raise MalformedMessage("a membership whose nodes are not in ascending order")
        return cls(tuple(nodes[:voters]), tuple(nodes[voters:]))


@dataclass(frozen=True, slots=True)
class AddLearner:
    node: int


@dataclass(frozen=True, slots=True)
class PromoteLearner:
    node: int


@dataclass(frozen=True, slots=True)
class RemoveNode:
    node: int


Change = AddLearner | PromoteLearner | RemoveNode
