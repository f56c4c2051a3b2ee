"""Whole clusters on bad days, against named invariants; and planted bugs, to show that these tests would see one."""

import pytest

from millpond.core.raft.output import Role
from tests.core.raft import test_traps as traps
from tests.core.raft.chaos import PROFILES, run_seed
from tests.core.raft.cluster import Cluster
from tests.core.raft.mutants import MUTANTS, SUBTLE, Mutant

DAYS = 20
SEEDS = 600
SEEDS_PER_TEST = 60
SEEDS_FOR_A_MUTANT = 400


@pytest.mark.parametrize("profile", range(len(PROFILES)), ids=[profile.name for profile in PROFILES])
def test_a_few_bad_days_end_well(profile: int) -> None:
    committed = [run_seed(10_000 * len(PROFILES) + profile + len(PROFILES) * day).cluster for day in range(DAYS)]
    assert sum(cluster.committed.newest for cluster in committed) > DAYS * 5, (
        "a test in which nothing happens shows nothing"
    )
    assert sum(len(cluster.single_leader.leaders) for cluster in committed) > DAYS


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_bad_days_end_well(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        try:
            run_seed(seed)
        except AssertionError as found:
            raise AssertionError(f"seed {seed}: {found}") from found


def test_one_seed_is_one_story() -> None:
    stories = [run_seed(7) for _ in range(2)]
    assert stories[0].cluster.inputs == stories[1].cluster.inputs
    assert stories[0].cluster.now == stories[1].cluster.now


def test_messages_may_travel_as_bytes() -> None:
    cluster = Cluster(1)
    cluster.through_bytes()
    assert cluster.run_until(10.0, unless=lambda: cluster.leader() is not None)
    leader = cluster.leader()
    assert leader is not None
    for number in range(20):
        cluster.propose(leader, b"%d" % number)
    last = leader.raft.log.last_index
    assert cluster.run_until(20.0, unless=lambda: all(node.applied_index == last for node in cluster.nodes.values()))


def test_a_quiet_cluster_keeps_its_leader_and_its_lease() -> None:
    cluster = Cluster(2)
    cluster.run_until(10.0)
    leader = cluster.leader()
    assert leader is not None
    term = leader.raft.term
    for step in range(11, 60):
        cluster.run_until(float(step))
        until = leader.raft.lease_until(leader.clock(cluster.now))
        assert until is not None
        assert until > leader.clock(cluster.now)
    assert (leader.raft.role, leader.raft.term) == (Role.LEADER, term)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    for seed in range(SEEDS_FOR_A_MUTANT):
        try:
            run_seed(seed)
        except (AssertionError, KeyError):  # an invariant; or a leader that misses a peer it should have
            return
    pytest.fail(f"{SEEDS_FOR_A_MUTANT} bad days did not show it")


@pytest.mark.parametrize(("mutant", "trap"), SUBTLE.items(), ids=lambda each: getattr(each, "__name__", each))
def test_a_planted_bug_that_needs_bad_luck_is_found_by_its_trap(
    mutant: Mutant, trap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    getattr(traps, trap)()
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        getattr(traps, trap)()
