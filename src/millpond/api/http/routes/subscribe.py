"""POST /subscribe, /heartbeat, /fetch, /commit, /leave: members of a consumer group, over HTTP.

    /subscribe   {"group", "topics"}                            joins; {"assigned_partitions", "member_id", ...}
    /heartbeat   {"group", "member_id", "member_epoch"}         stays; the same answer, as it is now
    /fetch       the same, and "count", "wait_ms", "positions"  messages of its partitions, and where to go on
    /commit      the same, and "offsets"                        how far it has come
    /leave       {"group", "member_id"}

Nothing is kept here: a member is its coordinator's, and may ask any broker. It tells its epoch each time, and takes the
new one from the answer; partitions that are taken from it are gone when a heartbeat says so. A fetch begins where
`positions` say, else where the group has committed, else at the start.
"""

from collections.abc import Collection
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from millpond.api.anywhere.reading import EARLIEST, Place
from millpond.api.http.forms import FORMS, INT32_MAX, PlacedMessage, TopicName, form_of_accept, shown_placed
from millpond.api.http.replies import Reply
from millpond.api.http.routes.consume import COUNT_DEFAULT, Count, WaitMs
from millpond.api.http.routes.groups import OffsetOf, PartitionName, describe_group, named
from millpond.api.http.routing import Call, Route
from millpond.api.http.services import Services
from millpond.client.refusals import NEW_COORDINATOR_CODES, refusal
from millpond.model.errors import CoordinatorUnavailable, UnknownMember
from millpond.model.ids import TopicPartition
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

REBALANCE_MS: Final = 60_000
"""How long a member may keep what was taken from it before it counts as gone."""
JOINING: Final = 0
LEAVING: Final = -1
BEATS_MAX: Final = 4
"""Of one request: to take what is assigned and say so, until it stands."""

Name = Annotated[str, Meta(min_length=1, max_length=249)]
GroupName = Annotated[str, Meta(min_length=1, max_length=249, examples=["kitchen"])]
Epoch = Annotated[int, Meta(ge=1, le=INT32_MAX)]


class Subscription(Struct, forbid_unknown_fields=True):
    group: GroupName
    topics: Annotated[list[TopicName], Meta(min_length=1, max_length=1_000)]


class Membership(Struct, forbid_unknown_fields=True):
    group: GroupName
    member_id: Name
    member_epoch: Epoch


class Member(Struct):
    assigned_partitions: list[PartitionName]
    member_id: str
    member_epoch: int
    """To be told with the next request."""
    heartbeat_interval_ms: int
    """When to come again, at the latest."""


class FetchWish(Membership):
    count: Count = COUNT_DEFAULT
    wait_ms: WaitMs = 0
    positions: Annotated[list[OffsetOf], Meta(max_length=10_000)] = []
    """Where to begin, for partitions where that is not what was committed."""


class Fetched(Struct):
    messages: list[PlacedMessage]
    positions: list[OffsetOf]
    """Where to go on, in each assigned partition: for the next fetch, and for the commit."""
    member_epoch: int
    assigned_partitions: list[PartitionName]


class Commit(Membership):
    offsets: Annotated[list[OffsetOf], Meta(min_length=1, max_length=10_000)]
    """Of the next message to read, in each partition."""


class Committed(Struct):
    committed: int
    """How many offsets."""


class Leave(Struct, forbid_unknown_fields=True):
    group: GroupName
    member_id: Name


class Left(Struct):
    left: str


async def subscribe(call: Call) -> Member:
    services, wish = call.services, call.body
    member_id = f"{services.node.rng.getrandbits(128):032x}"
    joined = await _beat(services, wish.group, member_id, JOINING, topics=wish.topics)
    return await _settle(services, wish.group, joined, member_id, ())


async def heartbeat(call: Call) -> Member:
    return await _stay(call.services, call.body)


async def fetch(call: Call) -> Reply:
    services, wish = call.services, call.body
    form = form_of_accept(call.request.headers.get(b"accept", b""))
    member = await _stay(services, wish)
    assigned = [TopicPartition(each.topic, each.partition) for each in member.assigned_partitions]
    positions = await _positions(services, wish, assigned)
    places = [Place(at, offset) for at, offset in positions.items()]
    reads = await services.reading.read(places, count=wish.count, wait_ms=wish.wait_ms) if places else []
    messages = [shown_placed(form, record, *read.at) for read in reads for record in read.records]
    positions |= {read.at: read.next_offset for read in reads}
    ahead = [OffsetOf(*at, offset) for at, offset in sorted(positions.items())]
    found = Fetched(messages, ahead, member.member_epoch, member.assigned_partitions)
    return Reply(200, form.value, msgspec.json.encode(found) + b"\n")


async def _positions(
    services: Services, wish: FetchWish, assigned: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    said = {TopicPartition(each.topic, each.partition): each.offset for each in wish.positions}
    committed: dict[TopicPartition, int] = {}
    if any(at not in said for at in assigned):
        committed = dict(await services.neighbours.ask_groups(lambda groups: groups.offsets(wish.group)))
    positions: dict[TopicPartition, int] = {}
    for at in assigned:
        known = said.get(at, committed.get(at))
        positions[at] = await services.reading.offset_at(at, EARLIEST) if known is None else known
    return positions


async def commit(call: Call) -> Committed:
    services, wish = call.services, call.body
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for each in wish.offsets:
        services.reading.check(TopicPartition(each.topic, each.partition))
        part = OffsetCommitRequestPartition(
            partition_index=each.partition, committed_offset=each.offset, committed_metadata=""
        )
        topics.setdefault(each.topic, []).append(part)
    request = OffsetCommitRequest(
        group_id=wish.group,
        generation_id_or_member_epoch=wish.member_epoch,
        member_id=wish.member_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )

    async def ask() -> Committed:
        answer = await services.neighbours.cluster.ask_coordinator(wish.group, request, OffsetCommitResponse)
        for topic in answer.topics:
            for part in topic.partitions:
                _check(services, wish.group, part.error_code, None)
        return Committed(len(wish.offsets))

    return await services.neighbours.cluster.retrying(ask)


async def leave(call: Call) -> Left:
    await _beat(call.services, call.body.group, call.body.member_id, LEAVING)
    return Left(call.body.member_id)


# Heartbeats


async def _stay(services: Services, wish: Membership) -> Member:
    """With what the coordinator says it has: whoever lost an answer is told again."""
    described = await describe_group(services, wish.group)
    found = next((each for each in described.members if each.member_id == wish.member_id), None)
    if found is None:
        raise UnknownMember(f"group {wish.group} has no member {wish.member_id}; subscribe again")
    beaten = await _beat(services, wish.group, wish.member_id, wish.member_epoch, owned=found.assigned)
    return await _settle(services, wish.group, beaten, wish.member_id, found.assigned)


async def _settle(
    services: Services,
    group: str,
    answer: ConsumerGroupHeartbeatResponse,
    member_id: str,
    owned: Collection[TopicPartition],
) -> Member:
    """Takes what is assigned, and says so."""
    for _ in range(BEATS_MAX):
        if answer.assignment is None:
            break
        owned = _names(services, answer.assignment.topic_partitions)
        answer = await _beat(services, group, member_id, answer.member_epoch, owned=owned)
    return Member(named(list(owned)), member_id, answer.member_epoch, answer.heartbeat_interval_ms)


async def _beat(
    services: Services,
    group: str,
    member_id: str,
    epoch: int,
    *,
    topics: list[str] | None = None,
    owned: Collection[TopicPartition] | None = None,
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch)
    if topics is not None:
        request.subscribed_topic_names = sorted(set(topics))
        request.rebalance_timeout_ms = REBALANCE_MS
        request.topic_partitions = []
    elif owned is not None:
        request.topic_partitions = _ids(services, owned)

    async def ask() -> ConsumerGroupHeartbeatResponse:
        answer = await services.neighbours.cluster.ask_coordinator(group, request, ConsumerGroupHeartbeatResponse)
        _check(services, group, answer.error_code, answer.error_message)
        return answer

    return await services.neighbours.cluster.retrying(ask)


def _check(services: Services, group: str, code: int, reason: str | None) -> None:
    if code in NEW_COORDINATOR_CODES:
        services.neighbours.cluster.forget_coordinator(group)
        raise CoordinatorUnavailable(f"group {group}: its coordinator moves, or is still reading; ask again")
    if code:
        raise refusal(code, reason, of=f"group {group}")


def _ids(services: Services, places: Collection[TopicPartition]) -> list[TopicPartitions]:
    by_topic: dict[bytes, list[int]] = {}
    for at in sorted(places):
        topic = services.node.image.topics.get(at.topic)
        if topic is not None:
            by_topic.setdefault(topic.topic_id, []).append(at.partition)
    return [TopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in by_topic.items()]


def _names(services: Services, places: list[TopicPartitions]) -> list[TopicPartition]:
    known = services.node.image.topics_by_id
    return [
        TopicPartition(known[each.topic_id].name, number)
        for each in places
        if each.topic_id in known
        for number in each.partitions
    ]


ROUTES = (
    Route(
        method="POST",
        path="/subscribe",
        summary="Join a consumer group",
        handler=subscribe,
        body=Subscription,
        answer=Member,
    ),
    Route(
        method="POST",
        path="/heartbeat",
        summary="Stay in a consumer group, and learn what is assigned",
        handler=heartbeat,
        body=Membership,
        answer=Member,
    ),
    Route(
        method="POST",
        path="/fetch",
        summary="Read messages of a member's partitions",
        handler=fetch,
        body=FetchWish,
        answer=Fetched,
        gives=tuple(FORMS),
    ),
    Route(
        method="POST",
        path="/commit",
        summary="Say how far a member has come",
        handler=commit,
        body=Commit,
        answer=Committed,
    ),
    Route(method="POST", path="/leave", summary="Leave a consumer group", handler=leave, body=Leave, answer=Left),
)
