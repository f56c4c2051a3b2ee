"""Bugs planted on purpose, one at a time, so that the model proves that it would see them.

Each leaves out one thought of the design: something that works on every day on which nobody crashes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from millpond.core.metadata import alterations, elections, partition_changes, reassignments, replicas
from millpond.core.metadata.commands import ChangePartition, Command, Endpoint
from millpond.core.metadata.image import Image, Partition, Topic
from millpond.core.replication import following
from millpond.core.replication.leading import IsrChange, IsrOutcome, Leading
from millpond.core.replication.lease import Lease, Sessions
from millpond.model.ids import LeaderEpoch, Offset
from tests.core.replication import model
from tests.core.replication.model import Fetch, Node, Record, World

Mutant = Callable[[pytest.MonkeyPatch], None]


def a_new_follower_truncates_to_its_high_watermark(patch: pytest.MonkeyPatch) -> None:
    def learn(self: World, node: Node, steps: int) -> None:
        before = node.partition
        original(self, node, steps)
        after = node.partition
        if before and after and after.leader_epoch != before.leader_epoch and after.leader != node.broker:
            del node.log[node.high_watermark :]
            node.synced = min(node.synced, len(node.log))

    original = World.learn
    patch.setattr(World, "learn", learn)


def a_replica_comes_in_before_it_has_reached_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    def may_come(self: Leading, replica: int, now: int) -> bool:
        follower = self._followers[replica]
        return self._is_up(follower, replica) and follower.end >= self.high_watermark - 2

    patch.setattr(Leading, "_may_come", may_come)


def the_high_watermark_is_counted_over_the_smaller_isr(patch: pytest.MonkeyPatch) -> None:
    """What was asked for is not counted before it is decided."""
    patch.setattr(Leading, "_counted", lambda self: set(self.members.isr))


def a_smaller_isr_is_counted_before_it_is_decided(patch: pytest.MonkeyPatch) -> None:
    def counted(self: Leading) -> set[int]:
        return set(self._asked.brokers if self._asked is not None else self.members.isr)

    patch.setattr(Leading, "_counted", counted)


def an_answer_that_was_lost_is_taken_for_a_refusal(patch: pytest.MonkeyPatch) -> None:
    def answered(self: Leading, change: IsrChange, outcome: IsrOutcome) -> bool:
        lost = outcome is IsrOutcome.UNKNOWN
        return original(self, change, IsrOutcome.REFUSED if lost else outcome)

    original = Leading.isr_answered
    patch.setattr(Leading, "isr_answered", answered)
    patch.setattr(Leading, "_is_about_to_come", lambda self, replica: False)


def the_high_watermark_moves_with_too_few_in_sync(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Leading) -> bool:
        end = min(self._end_of(each) for each in self._counted())
        self.high_watermark = max(self.high_watermark, end)
        return True

    patch.setattr(Leading, "_advance", advance)


def a_lost_disk_goes_unnoticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elections, "_is_lost", lambda image, broker, directory_id: False)


def the_eligible_stay_so_when_enough_are_in_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_changes, "insync_min", lambda image, topic, partition: 99)


def anybody_is_elected_when_the_last_in_sync_is_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_changes, "may_elect_unclean", lambda image, topic: True)


def a_leader_that_restarts_keeps_its_epoch(patch: pytest.MonkeyPatch) -> None:
    def register(
        image: Image, broker: int, *, endpoints: tuple[Endpoint, ...], directory_id: bytes
    ) -> tuple[Command, ...]:
        commands = original(image, broker, endpoints=endpoints, directory_id=directory_id)
        return tuple(each for each in commands if not _raises_epoch_of(broker, each, image))

    original = elections.register_broker
    patch.setattr(elections, "register_broker", register)


def _raises_epoch_of(broker: int, command: Command, image: Image) -> bool:
    if not isinstance(command, ChangePartition):
        return False
    before = image.topics_by_id[command.topic_id].partitions[command.partition]
    return command.leader == before.leader == broker


def the_epoch_is_not_raised_at_an_election(patch: pytest.MonkeyPatch) -> None:
    """The image refuses such a command, so what is planted is an image that does not, too."""

    def change(image: Image, topic: Topic, number: int, **named: Any) -> ChangePartition:  # noqa: ANN401
        made = original(image, topic, number, **named)
        return replace(made, leader_epoch=topic.partitions[number].leader_epoch)

    original = partition_changes.change
    for module in (partition_changes, elections, replicas, reassignments):
        patch.setattr(module, "change", change)
    patch.setattr("millpond.core.metadata.image._check_change", lambda before, after: None)


def a_follower_fetches_on_before_it_has_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "fetch_offset", lambda self, node: len(node.log))


def a_word_from_an_earlier_life_brings_a_replica_in(patch: pytest.MonkeyPatch) -> None:
    def is_up(self: Leading, follower: object, replica: int) -> bool:
        return replica in self.members.epochs

    def ask(self: Leading, now: int) -> IsrChange | None:
        change = original(self, now)
        if change is None:
            return None
        latest = tuple((each, self.members.epochs.get(each, 0)) for each, _ in change.isr)
        self._asked = IsrChange(change.partition_epoch, latest)
        return self._asked

    original = Leading.ask_isr
    patch.setattr(Leading, "_is_up", is_up)
    patch.setattr(Leading, "ask_isr", ask)


def a_log_that_differs_is_not_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(following, "diverging", lambda history, **_: None)


def a_log_is_cut_only_where_the_leader_says(patch: pytest.MonkeyPatch) -> None:
    """One's own record of that epoch may end earlier."""

    def part(at: following.DivergingEpoch, *rest: object) -> following.Step:
        return following.Truncate(at.end)

    patch.setattr(following, "_part", part)


def a_fetch_from_a_log_that_differs_counts(patch: pytest.MonkeyPatch) -> None:
    def read(self: World, node: Node, leading: Leading, fetch: Fetch) -> tuple[following.FetchAnswer, list[Record]]:
        offset, end = Offset(fetch.offset), Offset(len(node.log))
        leading.fetched(fetch.source, broker_epoch=fetch.life, offset=offset, leader_end=end, now=self.now)
        return original(self, node, leading, fetch)

    original = World._read
    patch.setattr(World, "_read", read)


def an_epoch_that_wrote_nothing_is_taken_for_none(patch: pytest.MonkeyPatch) -> None:
    """A follower with records of an epoch that the leader never heard of is let be."""

    def diverging(
        history: following.EpochHistory, *, log_end: Offset, last_fetched_epoch: LeaderEpoch, fetch_offset: Offset
    ) -> following.DivergingEpoch | None:
        if last_fetched_epoch > history.latest:
            return None
        return original(history, log_end=log_end, last_fetched_epoch=last_fetched_epoch, fetch_offset=fetch_offset)

    original = following.diverging
    patch.setattr(following, "diverging", diverging)


def a_new_leader_tells_its_old_high_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leading, "is_caught_up_with_the_past", True)


def the_last_in_sync_is_dropped_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """It is not even eligible afterwards, so that its partition never has a leader again."""

    def left(partition: Partition, broker: int, isr: tuple[int, ...], *, lost: bool) -> Partition:
        return replace(partition, isr=isr, elr=())

    def change(*given: Any, **named: Any) -> ChangePartition:  # noqa: ANN401
        return replace(original(*given, **named), elr=())

    original = partition_changes.change
    patch.setattr(elections, "_left", left)
    for module in (partition_changes, elections):
        patch.setattr(module, "change", change)


def a_lease_is_counted_from_its_answer(patch: pytest.MonkeyPatch) -> None:
    def renew(self: World, node: Node, sent_at: int) -> None:
        node.lease.renewed(sent_at=self.local_time(node))

    patch.setattr(World, "_renew", renew)


def a_lease_lasts_a_whole_session_on_a_slow_clock(patch: pytest.MonkeyPatch) -> None:
    def renewed(self: Lease, *, sent_at: int) -> None:
        self.valid_until = max(self.valid_until, sent_at + model.SESSION_MS)

    patch.setattr(Lease, "renewed", renewed)


def who_is_being_fenced_is_still_heard(patch: pytest.MonkeyPatch) -> None:
    """Between the decision to fence a broker and its being done, here made long."""

    def fence(self: World) -> None:
        self.tell("fencing is decided a message later")
        for broker, epoch in getattr(self, "late", []):
            self.decide(elections.fence_broker(self.image, broker, epoch=epoch))
        self.late = self.sessions.due(self.now)  # type: ignore[attr-defined]
        for session in self.sessions._sessions.values():
            session.fencing = False

    patch.setattr(World, "fence_the_silent", fence)


def a_new_controller_goes_by_what_it_never_heard(patch: pytest.MonkeyPatch) -> None:
    """It fences at once whom it has not heard yet."""

    def new_sessions(self: World) -> Sessions:
        first = not hasattr(self, "sessions")
        return Sessions(self._live(), own=-1, session_ms=model.SESSION_MS, now=self.now if first else self.now - 900)

    patch.setattr(World, "_new_sessions", new_sessions)


def a_dropped_replica_that_comes_again_is_believed_its_old_words(patch: pytest.MonkeyPatch) -> None:
    """The leader epoch stays when a replica is dropped."""

    def change(image: Image, topic: Topic, number: int, **named: Any) -> ChangePartition:  # noqa: ANN401
        before = topic.partitions[number]
        made = original(image, topic, number, **named)
        same = not named.get("raise_epoch") and made.leader == before.leader
        return replace(made, leader_epoch=before.leader_epoch) if same else made

    original = partition_changes.change
    for module in (partition_changes, elections, replicas, reassignments):
        patch.setattr(module, "change", change)


def the_eligible_stay_so_when_fewer_need_be_in_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(alterations, "_no_longer_eligible", lambda image: [])


MUTANTS: tuple[Mutant, ...] = (
    a_new_follower_truncates_to_its_high_watermark,
    a_replica_comes_in_before_it_has_reached_the_high_watermark,
    the_high_watermark_is_counted_over_the_smaller_isr,
    a_smaller_isr_is_counted_before_it_is_decided,
    the_high_watermark_moves_with_too_few_in_sync,
    a_lost_disk_goes_unnoticed,
    the_eligible_stay_so_when_enough_are_in_sync,
    anybody_is_elected_when_the_last_in_sync_is_gone,
    the_epoch_is_not_raised_at_an_election,
    a_follower_fetches_on_before_it_has_synced,
    a_word_from_an_earlier_life_brings_a_replica_in,
    a_log_that_differs_is_not_cut,
    a_fetch_from_a_log_that_differs_counts,
    an_epoch_that_wrote_nothing_is_taken_for_none,
    a_new_leader_tells_its_old_high_watermark,
    the_last_in_sync_is_dropped_for_nobody,
    a_lease_is_counted_from_its_answer,
    a_lease_lasts_a_whole_session_on_a_slow_clock,
    who_is_being_fenced_is_still_heard,
    a_new_controller_goes_by_what_it_never_heard,
    the_eligible_stay_so_when_fewer_need_be_in_sync,
)
RARE: tuple[tuple[Mutant, int], ...] = (
    (an_answer_that_was_lost_is_taken_for_a_refusal, 51),
    (a_leader_that_restarts_keeps_its_epoch, 563),
    (a_log_is_cut_only_where_the_leader_says, 179),
    (a_dropped_replica_that_comes_again_is_believed_its_old_words, 1677),
)
"""They show only when several things come together; and a seed that showed them."""
