"""The assignor of share groups: every partition read, every member at work, balanced, and still where it may be."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millpond.core.groups.assignors import Ask, Assignment
from millpond.core.groups.records import TopicIdPartition
from millpond.core.groups.share_assignor import READERS_MIN, assign_shared

TOPICS = [bytes([letter]) * 16 for letter in b"abcd"]
SIZES = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), max_size=4)
MEMBERS = st.sampled_from([f"m{number}" for number in range(12)])
UNLIKE = st.dictionaries(MEMBERS, st.frozensets(st.sampled_from(TOPICS)), min_size=1)
ALIKE = st.builds(dict.fromkeys, st.sets(MEMBERS, min_size=1), st.frozensets(st.sampled_from(TOPICS)))
ANYTHING = st.dictionaries(
    MEMBERS, st.frozensets(st.builds(TopicIdPartition, st.sampled_from(TOPICS), st.integers(0, 12)))
)


def readers(assignment: Assignment) -> Counter[TopicIdPartition]:
    return Counter(each for share in assignment.values() for each in share)


def moved(before: Assignment, after: Assignment) -> int:
    """How many partitions members lose that they could have kept."""
    return sum(len(share - after[member]) for member, share in before.items() if member in after)


@given(sizes=SIZES, subscriptions=st.one_of(ALIKE, UNLIKE), current=ANYTHING)
def test_every_partition_has_a_reader_and_every_member_something_to_read(
    sizes: dict[bytes, int], subscriptions: dict[str, frozenset[bytes]], current: Assignment
) -> None:
    ask = Ask(sizes, subscriptions, current)
    assignment = assign_shared(ask)
    assert assignment.keys() == subscriptions.keys()
    assert sorted(readers(assignment)) == ask.partitions()
    for member, share in assignment.items():
        assert {each.topic_id for each in share} <= subscriptions[member]
        assert bool(share) == bool(subscriptions[member] & sizes.keys())
    assert assign_shared(ask) == assignment


@given(sizes=SIZES, subscriptions=ALIKE, current=ANYTHING)
def test_members_that_want_the_same_get_as_much_and_partitions_as_many_readers(
    sizes: dict[bytes, int], subscriptions: dict[str, frozenset[bytes]], current: Assignment
) -> None:
    ask = Ask(sizes, subscriptions, current)
    assignment = assign_shared(ask)
    counts = [len(share) for share in assignment.values()]
    assert max(counts) - min(counts) <= 1
    partitions = ask.partitions()
    if partitions:
        members = len(subscriptions)
        assert set(readers(assignment).values()) == {max(-(-members // len(partitions)), min(members, READERS_MIN))}


@given(sizes=SIZES, subscriptions=ALIKE, current=ANYTHING)
def test_what_is_balanced_stays(
    sizes: dict[bytes, int], subscriptions: dict[str, frozenset[bytes]], current: Assignment
) -> None:
    assignment = assign_shared(Ask(sizes, subscriptions, current))
    assert assign_shared(Ask(sizes, subscriptions, assignment)) == assignment


@given(size=st.integers(1, 40), members=st.integers(1, 12))
def test_a_newcomer_takes_no_more_than_its_share(size: int, members: int) -> None:
    sizes, wanted = {TOPICS[0]: size}, frozenset(TOPICS[:1])
    before = assign_shared(Ask(sizes, dict.fromkeys([f"m{n}" for n in range(members)], wanted), {}))
    after = assign_shared(Ask(sizes, dict.fromkeys([f"m{n}" for n in range(members + 1)], wanted), before))
    newcomer = next(member for member in after if member not in before)
    assert moved(before, after) <= len(after[newcomer])


def test_more_members_than_partitions_read_them_together() -> None:
    wanted = frozenset(TOPICS[:1])
    assignment = assign_shared(Ask({TOPICS[0]: 2}, dict.fromkeys(["m1", "m2", "m3", "m4"], wanted), {}))
    assert sorted(len(share) for share in assignment.values()) == [1, 1, 1, 1]
    assert set(readers(assignment).values()) == {2}


def test_who_wants_only_one_partition_does_not_keep_others_from_it_that_want_more() -> None:
    one, both = frozenset(TOPICS[:1]), frozenset(TOPICS[:2])
    assignment = assign_shared(Ask({TOPICS[0]: 1, TOPICS[1]: 1}, {"narrow": one, "wide": both}, {}))
    assert assignment["narrow"] == {TopicIdPartition(TOPICS[0], 0)}
    assert TopicIdPartition(TOPICS[1], 0) in assignment["wide"]
