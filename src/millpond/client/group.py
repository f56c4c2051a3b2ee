"""Keeps one member of a group alive, and its offsets: drives a `Membership`, commits, asks what was committed.

Invariant: heartbeats go on whatever the application does; only `Consumer` takes and gives up partitions, in its time.
Driven by consumer.py, and by a task of its own.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from millpond.client.cluster import Cluster
from millpond.client.membership import (
    FENCED_CODES,
    LEAVE_EPOCH,
    Heartbeat,
    Membership,
    Place,
    State,
    Subscription,
)
from millpond.client.refusals import NEW_COORDINATOR_CODES, refusal
from millpond.client.settings import ConsumerSettings
from millpond.model.errors import CoordinatorUnavailable, MillpondError, UnknownMember
from millpond.model.ids import Offset, TopicPartition
from millpond.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from millpond.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millpond.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

STALE_MEMBER_EPOCH: Final = 113
NO_MEMBER: Final = ("", -1)


class Group:
    def __init__(
        self, name: str, cluster: Cluster, settings: ConsumerSettings, *, on_change: Callable[[], None]
    ) -> None:
        self.name = name
        self.membership: Membership | None = None
        self.is_lost = False
        """The coordinator took everything away; the consumer clears this when it has let go."""
        self._cluster = cluster
        self._settings = settings
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._member_id = f"{cluster.settings.rng.getrandbits(128):032x}"
        self._beating: asyncio.Task[None] | None = None
        self._nudge = asyncio.Event()

    # Membership

    def subscribe(self, subscription: Subscription) -> None:
        if self.membership is None:
            rng, backoff = self._cluster.settings.rng, self._cluster.settings.backoff
            is_static = self._settings.instance_id is not None
            self.membership = Membership(subscription, is_static=is_static, backoff=backoff, rng=rng)
            self._beating = self._loop.create_task(self._beat(self.membership))
        else:
            self.membership.subscribe(subscription)
            self._nudge.set()

    def own(self, owned: frozenset[Place]) -> None:
        assert self.membership is not None
        self.membership.own(owned)
        self._nudge.set()

    async def _beat(self, membership: Membership) -> None:
        while membership.state not in (State.FAILED, State.LEFT):
            heartbeat = membership.due(now=self._loop.time())
            if heartbeat is not None:
                await self._send(membership, heartbeat)
                continue
            self._nudge.clear()
            seconds = max(0.0, (membership.next_at or 0.0) - self._loop.time())
            timer = self._loop.call_later(seconds, self._nudge.set)
            try:
                await self._nudge.wait()
            finally:
                timer.cancel()

    async def _send(self, membership: Membership, heartbeat: Heartbeat) -> None:
        try:
            answer = await self._cluster.ask_coordinator(
                self.name, self._request(heartbeat), ConsumerGroupHeartbeatResponse
            )
        except MillpondError as error:
            if error.retriable:
                membership.unanswered(now=self._loop.time())
            else:
                membership.state, membership.failure = State.FAILED, error
        else:
            self._heard(membership, answer)
        if membership.target is not None or membership.failure is not None or self.is_lost:
            self._on_change()

    def _heard(self, membership: Membership, answer: ConsumerGroupHeartbeatResponse) -> None:
        now = self._loop.time()
        if answer.error_code == 0:
            assigned = answer.assignment
            places = None if assigned is None else frozenset(_places(assigned.topic_partitions))
            membership.answered(
                epoch=answer.member_epoch,
                interval_seconds=answer.heartbeat_interval_ms / 1000,
                assignment=places,
                now=now,
            )
            return
        if answer.error_code in NEW_COORDINATOR_CODES:
            self._cluster.forget_coordinator(self.name)
        of = f"group {self.name}"
        self.is_lost |= membership.refused(answer.error_code, answer.error_message, of=of, now=now)

    def _request(self, heartbeat: Heartbeat) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.name,
            member_id=self._member_id,
            member_epoch=heartbeat.epoch,
            instance_id=self._settings.instance_id,
        )
        if heartbeat.subscription is not None:
            request.rebalance_timeout_ms = int(self._settings.rebalance_seconds_max * 1000)
            request.subscribed_topic_names = sorted(heartbeat.subscription.topics)
            request.subscribed_topic_regex = heartbeat.subscription.pattern
            request.server_assignor = self._settings.assignor
        if heartbeat.owned is not None:
            by_topic: dict[bytes, list[int]] = {}
            for topic_id, partition in sorted(heartbeat.owned):
                by_topic.setdefault(topic_id, []).append(partition)
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in by_topic.items()
            ]
        return request

    async def leave(self) -> None:
        """Tells the coordinator, if it can be told; if not, it will notice."""
        if self.membership is None:
            return
        farewell = self.membership.leave()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        if farewell is not None:
            request = self._request(farewell)
            asked = self._cluster.ask_coordinator(self.name, request, ConsumerGroupHeartbeatResponse)
            await asyncio.gather(asked, return_exceptions=True)
        self.membership = None
        assert farewell is None or farewell.epoch <= LEAVE_EPOCH

    # Offsets

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if offsets:
            await self._cluster.retrying(lambda: self._commit(offsets))

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for at, offset in offsets.items():
            wish = OffsetCommitRequestPartition(
                partition_index=at.partition, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(at.topic, []).append(wish)
        member_id, epoch = self._credentials()
        answer = await self._cluster.ask_coordinator(
            self.name,
            OffsetCommitRequest(
                group_id=self.name,
                member_id=member_id,
                generation_id_or_member_epoch=epoch,
                group_instance_id=self._settings.instance_id if member_id else None,
                topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
            ),
            OffsetCommitResponse,
        )
        for topic in answer.topics:
            for part in topic.partitions:
                self._check(part.error_code, f"committing {topic.name}-{part.partition_index} of group {self.name}")

    def _credentials(self) -> tuple[str, int]:
        membership = self.membership
        return NO_MEMBER if membership is None else (self._member_id, membership.epoch)

    def _check(self, code: int, of: str) -> None:
        if code == 0:
            return
        if code in NEW_COORDINATOR_CODES:
            self._cluster.forget_coordinator(self.name)
        if code == STALE_MEMBER_EPOCH:
            raise CoordinatorUnavailable(f"{of}: the member's epoch has just changed; it goes again with the new one")
        if code in FENCED_CODES:
            raise UnknownMember(
                f"{of}: this consumer is not a member any more, its partitions went to others; what it read since its "
                "last commit will be read again. Poll more often, or raise rebalance_seconds_max"
            )
        raise refusal(code, None, of=of)

    async def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Only those there are."""
        wanted = list(places)
        return await self._cluster.retrying(lambda: self._committed(wanted)) if wanted else {}

    async def _committed(self, places: list[TopicPartition]) -> dict[TopicPartition, Offset]:
        by_topic: dict[str, list[int]] = {}
        for at in places:
            by_topic.setdefault(at.topic, []).append(at.partition)
        member_id, epoch = self._credentials()
        asked = OffsetFetchRequestGroup(
            group_id=self.name,
            member_id=member_id or None,
            member_epoch=epoch,
            topics=[OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in by_topic.items()],
        )
        older = [OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in by_topic.items()]
        answer = await self._cluster.ask_coordinator(
            self.name, OffsetFetchRequest(group_id=self.name, topics=older, groups=[asked]), OffsetFetchResponse
        )
        found: dict[TopicPartition, Offset] = {}
        of = f"offsets of group {self.name}"
        self._check(answer.groups[0].error_code if answer.groups else answer.error_code, of)
        for topic in answer.groups[0].topics if answer.groups else answer.topics:
            for part in topic.partitions:
                self._check(part.error_code, of)
                if part.committed_offset >= 0:
                    found[TopicPartition(topic.name, part.partition_index)] = Offset(part.committed_offset)
        return found


def _places(topics: Iterable[TopicPartitions]) -> Iterable[Place]:
    return (Place(topic.topic_id, partition) for topic in topics for partition in topic.partitions)
