"""Who founds a cluster, and when: never two, never by halves; and what is looked for, how often, and how much of it."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.core.cluster.discovery import (
    ANNOUNCED_SECONDS_MAX,
    ASKS_MAX,
    CANDIDATES_MAX,
    LOOK_SECONDS,
    PATIENCE_SECONDS,
    WANTED_SECONDS,
    Address,
    Ask,
    Discovery,
    LookUp,
    Sighting,
)

A, B, C = ("a", 9092), ("b", 9092), ("c", 9092)


def seen(
    node_id: int,
    *,
    founders: Sequence[int] = (1, 2, 3),
    members: Sequence[int] = (1, 2, 3),
    is_new: bool = True,
    directory: int = 0,
) -> Sighting:
    return Sighting(
        node_id=node_id,
        directory_id=bytes([node_id, directory]),
        founders=tuple(founders),
        members=tuple(members),
        is_new=is_new,
    )


def first(*sightings: tuple[Address, Sighting]) -> Discovery:
    """Broker 1 of three, which has seen these."""
    discovery = Discovery(1, [3, 2, 1], looks_up=True, now=0)
    discovery.listed([A, B, C], 0)
    for address, sighting in sightings:
        discovery.met(address, sighting, 0)
    return discovery


# Whether to begin


def test_a_new_broker_begins_once_every_founder_was_seen() -> None:
    discovery = first((B, seen(2)))
    verdict = discovery.verdict(0, is_new=True)
    assert (verdict.is_ready, verdict.missing, verdict.is_hopeless) == (False, (3,), False)
    discovery.met(C, seen(3), 1)
    assert discovery.verdict(0, is_new=True).is_ready
    discovery.unanswered(B, 2)
    assert discovery.verdict(0, is_new=True).missing == (2,), "it has to be there at the same time"


def test_one_that_was_part_of_the_cluster_before_and_one_that_joins_wait_for_nobody() -> None:
    assert first().verdict(0, is_new=False).is_ready
    assert Discovery(4, [1, 2, 3], looks_up=True, now=0).verdict(0, is_new=True).is_ready


def test_a_founder_that_lost_its_disk_goes_where_the_cluster_is() -> None:
    assert first((B, seen(2, is_new=False))).verdict(0, is_new=True).is_ready
    other_list = first((B, seen(2, is_new=False, founders=(1, 2)))).verdict(0, is_new=True)
    assert not other_list.is_ready
    assert other_list.objections == (
        "peers of broker 2 at b:9092 names 1,2, and here 1,2,3; give all brokers of a cluster the same",
    )


def test_a_cluster_without_this_broker_is_not_founded_beside() -> None:
    discovery = first((B, seen(2)), (C, seen(3)))
    discovery.listed([A, B, C, ("d", 1)], 1)
    discovery.met(("d", 1), seen(5, is_new=False, members=(4, 5, 6)), 1)
    verdict = discovery.verdict(0, is_new=True)
    assert not verdict.is_ready
    [told] = verdict.objections
    assert told == (
        "the cluster that broker 5 at d:1 belongs to was founded without broker 1, and consists of 4,5,6; to join it, "
        "name those in peers, and not 1"
    )


@pytest.mark.parametrize(
    ("sighting", "matters"),
    [
        (seen(3, founders=(1, 2, 4)), True),
        (seen(4, founders=(4, 5, 6)), True),
        (seen(4, founders=(1, 2, 3)), False),
        (seen(4, founders=(1, 2)), False),
    ],
    ids=["a founder with another list", "one who founds with others", "one who joins", "one who joins by another list"],
)
def test_founders_name_the_same_founders(sighting: Sighting, matters: bool) -> None:
    discovery = first((B, seen(2)), (C, seen(3)))
    discovery.listed([A, B, C, ("d", 1)], 1)
    discovery.met(("d", 1), sighting, 1)
    verdict = discovery.verdict(0, is_new=True)
    assert verdict.is_ready is not matters
    assert any("give all brokers of a cluster the same" in each for each in verdict.objections) is matters


def test_two_with_one_node_id_keep_the_cluster_from_being_founded_and_one_with_two_addresses_does_not() -> None:
    discovery = first((B, seen(2)), (C, seen(3)))
    discovery.listed([A, B, C, ("d", 1)], 1)
    discovery.met(("d", 1), seen(2), 1)
    assert discovery.verdict(0, is_new=True).is_ready
    discovery.met(("d", 1), seen(2, directory=9), 1)
    verdict = discovery.verdict(0, is_new=True)
    assert not verdict.is_ready
    assert "node id 2 is used by two brokers, at b:9092 and at d:1; give each" in verdict.objections[0]


def test_waiting_ends_where_too_many_refuse_or_the_node_id_is_taken() -> None:
    discovery = first()
    discovery.met_itself(A, 0)
    discovery.refused(B, "another secret", 1)
    assert not discovery.verdict(PATIENCE_SECONDS, is_new=True).is_hopeless
    discovery.refused(C, "another secret", 1)
    assert not discovery.verdict(1, is_new=True).is_hopeless, "others may come"
    verdict = discovery.verdict(PATIENCE_SECONDS, is_new=True)
    assert verdict.is_hopeless
    assert verdict.objections == ("b:9092: another secret", "c:9092: another secret")
    assert discovery.verdict(PATIENCE_SECONDS, is_new=False).is_hopeless
    discovery.listed([A, B, C, ("d", 1)], 4)
    discovery.met(("d", 1), seen(3), 4)
    assert not discovery.verdict(4, is_new=True).is_hopeless, "one agrees"
    discovery.refused(("::1", 9), "node id 1 is taken", 3, is_taken=True)
    verdict = discovery.verdict(0, is_new=True)
    assert verdict.is_hopeless
    assert verdict.objections[0] == "[::1]:9: node id 1 is taken"


NODES = (1, 2, 3, 4)
FOUNDERS = st.frozensets(st.sampled_from(NODES), min_size=2)
TWO_MINDS = st.tuples(FOUNDERS, FOUNDERS).flatmap(
    lambda minds: st.tuples(*(st.sampled_from(minds) for _ in NODES)),
)
LOOKS = st.permutations([(eye, other) for eye in NODES for other in NODES if eye != other] * 2)


@given(TWO_MINDS, LOOKS)
def test_whatever_is_seen_in_whatever_order_nobody_founds_a_cluster_with_two_minds(
    lists: tuple[frozenset[int], ...], looks: list[tuple[int, int]]
) -> None:
    """Who begins, begins with the list of its settings; two lists that share a broker must not both become clusters."""
    brokers = {each: Discovery(each, lists[each - 1], looks_up=True, now=0) for each in NODES}
    for each in brokers.values():
        each.listed([("host", other) for other in brokers], 0)
    begun: set[int] = set()
    for eye, other in looks:
        founders = tuple(sorted(lists[other - 1]))
        sighting = seen(other, founders=founders, members=founders, is_new=other not in begun)
        brokers[eye].met(("host", other), sighting, 0)
        if eye in lists[eye - 1] and brokers[eye].verdict(0, is_new=eye not in begun).is_ready:
            begun.add(eye)
    for one in begun:
        for two in begun:
            assert lists[one - 1] == lists[two - 1] or not lists[one - 1] & lists[two - 1]


# What is looked for


def test_while_founders_are_waited_for_everybody_is_asked_again_and_again_but_oneself() -> None:
    discovery = Discovery(1, [1, 2, 3], looks_up=True, now=0)
    assert discovery.step(0) == [LookUp()]
    discovery.listed([A, B], 0)
    assert discovery.step(0) == [Ask(A), Ask(B)]
    assert discovery.step(0.5) == [], "each once at a time"
    discovery.met_itself(A, 0.5)
    discovery.met(B, seen(2), 0.5)
    assert discovery.step(LOOK_SECONDS) == [LookUp()]
    assert discovery.step(2 * LOOK_SECONDS) == [Ask(B)], "the name server has not answered yet"
    discovery.unanswered(B, 2 * LOOK_SECONDS)
    discovery.listed([A, B, C], 2 * LOOK_SECONDS)
    assert discovery.step(2 * LOOK_SECONDS) == [Ask(C)]
    discovery.unanswered(C, 2 * LOOK_SECONDS)
    assert discovery.step(3 * LOOK_SECONDS) == [LookUp(), Ask(B), Ask(C)]
    discovery.unlisted()
    assert discovery.step(4 * LOOK_SECONDS) == [LookUp()]


def test_afterwards_only_who_is_not_reached_is_looked_for() -> None:
    discovery = first((B, seen(2)), (C, seen(3)))
    discovery.met_itself(A, 0)
    discovery.settle()
    assert (discovery.step(100), discovery.deadline()) == ([], math.inf)
    discovery.unreached(2, B, 100)
    assert discovery.found == {3: C}
    assert discovery.step(100) == [LookUp(), Ask(B), Ask(C)]
    discovery.listed([A, C, ("d", 1)], 100)
    assert discovery.step(100) == [Ask(("d", 1))]
    discovery.met(("d", 1), seen(2), 101)
    assert discovery.found == {2: ("d", 1), 3: C}
    discovery.unreached(2, B, 200)
    assert (discovery.step(200), discovery.deadline()) == ([], math.inf), "that was another address"


def test_two_that_swapped_their_addresses_are_both_found_though_only_one_was_missed() -> None:
    discovery = first((B, seen(2)), (C, seen(3)))
    discovery.settle()
    discovery.unreached(2, B, 100)
    assert discovery.step(100) == [LookUp(), Ask(A), Ask(B), Ask(C)]
    discovery.met(B, seen(3), 100)
    discovery.met(C, seen(2), 100)
    assert discovery.found == {2: C}
    discovery.unreached(3, None, 100)
    discovery.met(B, seen(3), 101)
    assert discovery.found == {2: C, 3: B}


def test_who_stays_away_is_looked_for_less_and_less_and_not_at_all_once_nobody_wants_it() -> None:
    discovery = first()
    discovery.listed([], 0)
    discovery.settle()
    discovery.unreached(2, None, 100)
    looks = []
    for tenth in range(1_000, 2_000):
        now = tenth / 10
        if now < 150:
            discovery.unreached(2, None, now)
        looks += [now for effect in discovery.step(now) if effect == LookUp()]
        discovery.unlisted()
    assert looks[:5] == [100, 102, 106, 114, 122]
    assert 150 < looks[-1] < 150 + WANTED_SECONDS
    assert discovery.deadline() == math.inf
    discovery.unreached(2, None, 200)
    assert discovery.deadline() <= 200 + LOOK_SECONDS


@pytest.mark.parametrize("looks_up", [True, False])
def test_addresses_that_the_settings_name_are_asked_too_whatever_the_source_says(looks_up: bool) -> None:
    discovery = Discovery(1, [1, 2, 3], looks_up=looks_up, now=0, known=[B])
    assert Ask(B) in discovery.step(0)
    discovery.met(B, seen(2), 0)
    discovery.announced(B, 0)
    discovery.step(100)
    if looks_up:
        discovery.listed([C], 100)
    assert discovery.verdict(100, is_new=True).missing == (3,)


def test_an_address_that_is_announced_no_more_is_forgotten() -> None:
    discovery = Discovery(1, [1, 2], looks_up=False, now=0)
    discovery.announced(B, 0)
    assert discovery.step(0) == [Ask(B)]
    discovery.met(B, seen(2, founders=(1, 2)), 0)
    discovery.announced(B, 5)
    assert discovery.step(5) == [Ask(B)]
    assert discovery.verdict(0, is_new=True).is_ready
    discovery.step(5.1 + ANNOUNCED_SECONDS_MAX)
    assert discovery.verdict(0, is_new=True).missing == (2,)


@given(st.lists(st.integers(0, 600), max_size=700), st.booleans())
def test_what_is_kept_and_asked_is_bounded(ports: list[int], is_listed: bool) -> None:
    discovery = Discovery(1, [1, 2, 3], looks_up=is_listed, now=0)
    if is_listed:
        discovery.listed([("host", port) for port in ports], 0)
    else:
        for port in ports:
            discovery.announced(("host", port), 0)
    asked = [each for each in discovery.step(0) if isinstance(each, Ask)]
    assert len(asked) == min(ASKS_MAX, len(set(ports)))
    assert len(discovery._candidates) == min(CANDIDATES_MAX, len(set(ports)))
    assert discovery.deadline() > 0, "nothing is asked for at once again"
