"""Assignors: whole, exact, balanced, and still where they may be."""

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.core.groups.assignors import (
    ASSIGNORS,
    Ask,
    Assignment,
    assign_range,
    assign_round_robin,
    assign_uniform,
    guarded,
)
from millpond.core.groups.records import TopicIdPartition

TOPICS = [bytes([letter]) * 16 for letter in b"abcd"]
SIZES = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), max_size=4)
MEMBERS = st.sampled_from([f"m{number}" for number in range(7)])
UNLIKE = st.dictionaries(MEMBERS, st.frozensets(st.sampled_from(TOPICS)), min_size=1)
ALIKE = st.builds(
    dict.fromkeys,
    st.sets(MEMBERS, min_size=1),
    st.frozensets(st.sampled_from(TOPICS)),
)


def partitions(topic: int, *numbers: int) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(TOPICS[topic], number) for number in numbers)


def moved(before: Assignment, after: Assignment) -> int:
    """How many partitions that stay with somebody change hands."""
    owner = {each: member for member, share in before.items() for each in share}
    return sum(owner.get(each, member) != member for member, share in after.items() for each in share)


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@given(sizes=SIZES, subscriptions=st.one_of(ALIKE, UNLIKE), data=st.data())
def test_every_partition_goes_to_exactly_one_subscriber(
    assign: Callable[[Ask], Assignment],
    sizes: dict[bytes, int],
    subscriptions: dict[str, frozenset[bytes]],
    data: st.DataObject,
) -> None:
    anything = st.frozensets(st.builds(TopicIdPartition, st.sampled_from(TOPICS), st.integers(0, 12)))
    ask = Ask(sizes, subscriptions, data.draw(st.dictionaries(MEMBERS, anything)))
    assignment = assign(ask)
    assert assignment.keys() == subscriptions.keys()
    given_out = [each for share in assignment.values() for each in share]
    assert sorted(given_out) == ask.partitions()
    assert all(each.topic_id in subscriptions[member] for member, share in assignment.items() for each in share)
    assert assign(ask) == assignment


@given(sizes=SIZES, subscriptions=ALIKE)
def test_members_that_want_the_same_differ_by_one_at_most(
    sizes: dict[bytes, int], subscriptions: dict[str, frozenset[bytes]]
) -> None:
    for assign in (assign_uniform, assign_round_robin):
        counts = [len(share) for share in assign(Ask(sizes, subscriptions, {})).values()]
        assert max(counts) - min(counts) <= 1


@given(sizes=SIZES, before=UNLIKE, after=UNLIKE)
def test_no_single_move_would_make_a_uniform_assignment_more_even(
    sizes: dict[bytes, int], before: dict[str, frozenset[bytes]], after: dict[str, frozenset[bytes]]
) -> None:
    current = assign_uniform(Ask(sizes, before, {}))
    assignment = assign_uniform(Ask(sizes, after, current))
    for giver, taker in combinations(assignment, 2):
        if len(assignment[giver]) < len(assignment[taker]):
            giver, taker = taker, giver
        if any(each.topic_id in after[taker] for each in assignment[giver]):
            assert len(assignment[giver]) - len(assignment[taker]) <= 1


@given(sizes=SIZES, subscriptions=ALIKE)
def test_a_newcomer_takes_its_share_and_nothing_else_moves(
    sizes: dict[bytes, int], subscriptions: dict[str, frozenset[bytes]]
) -> None:
    before = assign_uniform(Ask(sizes, subscriptions, {}))
    topics = next(iter(subscriptions.values()))
    after = assign_uniform(Ask(sizes, {**subscriptions, "new": topics}, before))
    assert moved(before, after) == len(after["new"])


@given(sizes=SIZES, subscriptions=ALIKE)
def test_when_one_leaves_only_what_it_had_moves(
    sizes: dict[bytes, int], subscriptions: dict[str, frozenset[bytes]]
) -> None:
    before = assign_uniform(Ask(sizes, subscriptions, {}))
    *stay, gone = sorted(subscriptions)
    after = assign_uniform(Ask(sizes, {member: subscriptions[member] for member in stay}, before))
    assert moved({member: before[member] for member in stay}, after) == 0
    assert moved(before, after) == (len(before[gone]) if stay else 0)


@given(sizes=SIZES, subscriptions=st.one_of(ALIKE, UNLIKE))
def test_an_assignment_that_is_good_stays_as_it_is(
    sizes: dict[bytes, int], subscriptions: dict[str, frozenset[bytes]]
) -> None:
    once = assign_uniform(Ask(sizes, subscriptions, {}))
    assert assign_uniform(Ask(sizes, subscriptions, once)) == once


def test_range_gives_neighbours_and_the_same_numbers_of_each_topic() -> None:
    both = frozenset(TOPICS[:2])
    assert assign_range(Ask({TOPICS[0]: 3, TOPICS[1]: 3}, {"ana": both, "ben": both}, {})) == {
        "ana": partitions(0, 0, 1) | partitions(1, 0, 1),
        "ben": partitions(0, 2) | partitions(1, 2),
    }


def test_uniform_moves_along_a_chain_where_no_single_move_helps() -> None:
    """`full` can give only to `middle`, and only `middle` can give to `idle`."""
    subscriptions = {
        "full": frozenset(TOPICS[:1]),
        "middle": frozenset(TOPICS[:2]),
        "idle": frozenset(TOPICS[1:2]),
    }
    current = {"full": partitions(0, 0, 1), "middle": partitions(1, 0)}
    assignment = assign_uniform(Ask({TOPICS[0]: 2, TOPICS[1]: 1}, subscriptions, current))
    assert {member: len(share) for member, share in assignment.items()} == {"full": 1, "middle": 1, "idle": 1}


def test_an_assignor_of_somebody_elses_is_held_to_the_invariant() -> None:
    ask = Ask({b"t": 2}, {"ana": frozenset({b"t"}), "ben": frozenset()}, {})
    first, second = TopicIdPartition(b"t", 0), TopicIdPartition(b"t", 1)
    right = {"ana": frozenset({first, second})}
    wrong: list[Assignment] = [
        {},
        {"ana": frozenset({first})},
        {"ana": frozenset({first, second}), "ben": frozenset({second})},
        {"ben": frozenset({first, second})},
        {"ana": frozenset({first, second, TopicIdPartition(b"t", 2)})},
    ]
    told: list[BaseException] = []
    assert guarded("own", lambda _: right, on_error=told.append)(ask) is right
    assert told == []
    answers = iter(wrong)
    careless = guarded("own", lambda _: next(answers), on_error=told.append)
    for _ in range(len(wrong) + 1):  # at last it raises
        assert careless(ask) == assign_uniform(ask)
    assert [type(each) for each in told] == [*[ValueError] * len(wrong), StopIteration]
