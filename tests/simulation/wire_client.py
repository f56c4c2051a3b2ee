"""A small Kafka client on the project's own codec: one connection, requests matched to answers by correlation id.

    client = WireClient(host="broker", port=9092, client_id="one", rng=rng)
    response = await client.ask(MetadataRequest(topics=None))

Plain asyncio, so that it runs unmodified in the simulator. Each API is spoken in a version drawn once per client.

Invariant: `ask` gives the answer, or raises `Unanswered`, after which nobody knows whether the request took effect.
Then the connection is gone as well, so an answer that comes late is never taken for another's.
Driven by broker_world.py.
"""

import asyncio
import contextlib
import random
from typing import Any, NamedTuple, Protocol

from millpond.model.ids import ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from millpond.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.find_coordinator import FindCoordinatorRequest
from millpond.protocol.messages.headers import parse_response_header, request_frame, response_header_version
from millpond.protocol.messages.heartbeat import HeartbeatRequest
from millpond.protocol.messages.init_producer_id import InitProducerIdRequest
from millpond.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from millpond.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from millpond.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millpond.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from millpond.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from millpond.protocol.messages.registry import APIS, Api
from millpond.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from millpond.protocol.records import decode_batch, encode_values, iter_batches

ANSWER_SECONDS_MAX = 3.0
JOIN_SECONDS_MAX = 15.0
SESSION_MS = 6_000
REBALANCE_MS = 4_000
BY_NAME_MAX = {0: 12, 1: 12, 8: 9, 9: 9}
"""The last version of each API that names topics by name, where that is not its last."""

UNSURE = {
    6: "the broker stops leading",
    14: "the coordinator loads",
    15: "the coordinator failed",
    56: "the disk failed",
}
"""NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR: what was asked may have been done."""
LOOK_AGAIN = {
    3: "a topic that is not known there yet",
    5: "no leader",
    7: "not in time",
    14: "the coordinator loads",
    15: "no coordinator",
    16: "another coordinator",
    19: "too few in sync",
    20: "too few in sync, after it was appended",
    74: "an older leader epoch",
    75: "a newer leader epoch",
    78: "the end is not known yet",
    100: "a topic id that is not known there yet",
}
"""What a client of several brokers is told while they change places, and so asks again elsewhere."""
MEMBER_ID_REQUIRED = 79


class Unanswered(Exception):
    """No answer that says what was done: reset, none in time, a disk that failed. It may have taken effect."""


class Refused(Exception):
    """The broker answered with this error, and nothing was changed."""

    def __init__(self, code: int, said: str | None = None) -> None:
        super().__init__(f"error {code}" + (f": {said}" if said else ""))
        self.code = code


class Fetched(NamedTuple):
    records: tuple[tuple[int, bytes], ...]
    """Offset and value, from the offset asked for on."""
    end: int
    """The high watermark."""


class Membership(NamedTuple):
    group: str
    member_id: str
    generation: int
    partitions: tuple[int, ...]


class _Wire(asyncio.Protocol):
    """Frames in, by the correlation id they answer."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            correlation_id = int.from_bytes(frame[:4], "big")
            first = next(iter(self._waiting), None)
            assert correlation_id == first, f"the answer to {correlation_id} came; next in order is {first}"
            answer = self._waiting.pop(correlation_id)
            if not answer.done():
                answer.set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("the connection ended"))

    def send(self, correlation_id: int, frame: list[Any]) -> "asyncio.Future[bytes]":
        if self.transport is None:
            raise ConnectionResetError("the connection ended")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = answer
        self.transport.writelines(frame)
        return answer

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class UnderWay(NamedTuple):
    """A request that was sent and is not answered yet."""

    api: Api
    version: int
    connection: _Wire
    answer: "asyncio.Future[bytes]"


class Produced(NamedTuple):
    base_offset: int


class WireClient:
    """One connection at a time, made when there is something to ask. `ask` has one request under way; whoever wants
    several sends them one after another, and hears the answers in the same order."""

    def __init__(self, *, host: str, port: int, client_id: str, rng: random.Random) -> None:
        self._address = host, port
        self._client_id = client_id
        self._rng = rng
        self._versions: dict[int, int] = {}
        self._correlation_id = 0
        self._wire: _Wire | None = None
        self._connecting = asyncio.Lock()

    async def ask(self, message: Message, *, seconds_max: float = ANSWER_SECONDS_MAX) -> Any:  # noqa: ANN401 - its response
        try:
            async with asyncio.timeout(seconds_max):
                asked = await self._send(message)
                return self._decode(asked, await asked.answer)
        except (TimeoutError, OSError) as error:
            self.close()
            raise Unanswered(f"{APIS[message.api_key].name}: {error!r}") from error

    async def _send(self, message: Message) -> UnderWay:
        return self._send_on(await self._connected(), message)

    def _send_on(self, wire: _Wire, message: Message) -> UnderWay:
        version = self.version(message.api_key)
        self._correlation_id += 1
        frame = request_frame(message, version, correlation_id=self._correlation_id, client_id=self._client_id)
        return UnderWay(APIS[message.api_key], version, wire, wire.send(self._correlation_id, frame))

    def _decode(self, asked: UnderWay, frame: bytes) -> Any:  # noqa: ANN401 - the response
        api, version, answer = asked.api, asked.version, memoryview(frame)
        header_version = response_header_version(api.key, version)
        _, position = parse_response_header(answer, header_version=header_version)
        response, end = decode(api.response_class, answer, version, position)
        assert end == len(answer), f"{len(answer) - end} bytes behind the {api.name} response"
        return response

    def version(self, key: int) -> int:
        """Drawn once, as a client has one version of each API for as long as it lives."""
        if key not in self._versions:
            api = APIS[key]
            self._versions[key] = self._rng.randrange(api.version_min, BY_NAME_MAX.get(key, api.version_max) + 1)
        return self._versions[key]

    def close(self) -> None:
        if self._wire is not None:
            self._wire.abort()
            self._wire = None

    async def _connected(self) -> _Wire:
        async with self._connecting:
            if self._wire is None or self._wire.transport is None:
                loop = asyncio.get_running_loop()
                _, self._wire = await loop.create_connection(_Wire, *self._address)
            return self._wire

    # Topics and records

    async def create_topic(self, name: str, *, partitions: int, configs: dict[str, str], replicas: int = 1) -> int:
        """The error code; a topic that is there already is one."""
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=settings)
        (result,) = (await self.ask(CreateTopicsRequest(topics=[topic]))).topics
        code: int = result.error_code
        if code in UNSURE:
            raise Unanswered(UNSURE[code])
        return code

    async def partitions(self, topic: str) -> tuple[int, ...]:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (found,) = (await self.ask(asked)).topics
        _check(found.error_code)
        return tuple(sorted(each.partition_index for each in found.partitions))

    async def leaders(self, topic: str) -> dict[int, tuple[str, int]]:
        """The address of each partition's leader, where there is one."""
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = await self.ask(asked)
        _check(answer.topics[0].error_code)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        found = {each.partition_index: addresses.get(each.leader_id) for each in answer.topics[0].partitions}
        return {partition: address for partition, address in found.items() if address is not None}

    async def coordinator(self, group: str) -> tuple[str, int]:
        if self.version(FindCoordinatorRequest.api_key) >= 4:
            (found,) = (await self.ask(FindCoordinatorRequest(coordinator_keys=[group]))).coordinators
        else:
            found = await self.ask(FindCoordinatorRequest(key=group))
        _check(found.error_code)
        return found.host, found.port

    async def produce(self, topic: str, partition: int, batch: bytes, *, acks: int = -1) -> int:
        """The base offset, acknowledged by all replicas, or with acks=1 by the leader."""
        return _produced(await self.ask(_produce_request(topic, partition, batch, acks=acks))).base_offset

    async def send_batch(self, topic: str, partition: int, batch: bytes, *, behind: UnderWay | None) -> UnderWay | None:
        """And waits for nothing more; with acks=all. None where the connection of the one before is gone."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                wire = await self._connected()
            if behind is not None and behind.connection is not wire:
                return None
            return self._send_on(wire, _produce_request(topic, partition, batch, acks=-1))
        except (TimeoutError, OSError) as error:
            self.close()
            raise Unanswered(f"Produce: {error!r}") from error

    async def hear_produced(self, asked: UnderWay, *, seconds_max: float) -> Produced:
        """Refused with the error as it is: whoever sends several has to know what each was told."""
        try:
            async with asyncio.timeout(seconds_max):
                response = self._decode(asked, await asked.answer)
        except (TimeoutError, OSError) as error:
            self.close()
            raise Unanswered(f"Produce: {error!r}") from error
        return _produced(response)

    async def fetch(self, topic: str, partition: int, *, start: int, bytes_max: int, wait_ms: int) -> Fetched:
        part = FetchPartition(partition=partition, fetch_offset=start, partition_max_bytes=bytes_max)
        asked = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[part])])
        response = await self.ask(asked)
        answer = response.responses[0].partitions[0]
        _check(answer.error_code)
        data = answer.records or b""
        records = [each for position, _ in iter_batches(data) for each in decode_batch(data, position)]
        found = tuple((each.offset, each.value or b"") for each in records if each.offset >= start)
        return Fetched(found, answer.high_watermark)

    async def end_offset(self, topic: str, partition: int) -> int:
        part = ListOffsetsPartition(partition_index=partition, timestamp=-1)
        asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])])
        answer = (await self.ask(asked)).topics[0].partitions[0]
        _check(answer.error_code)
        offset: int = answer.offset
        return offset

    async def producer_id(self) -> int:
        answer = await self.ask(InitProducerIdRequest(transaction_timeout_ms=1000))
        _check(answer.error_code)
        given: int = answer.producer_id
        return given

    # Groups

    async def join(self, group: str, topic: str, member_id: str) -> JoinGroupResponse:
        """Twice where the broker wants to give a name first."""
        subscription = encode_subscription(ConsumerProtocolSubscription(topics=[topic]), 0)
        while True:
            asked = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
            )
            joined: JoinGroupResponse = await self.ask(asked, seconds_max=JOIN_SECONDS_MAX)
            if joined.error_code != MEMBER_ID_REQUIRED:
                _check(joined.error_code)
                return joined
            member_id = joined.member_id

    async def sync(self, group: str, topic: str, joined: JoinGroupResponse, partitions: tuple[int, ...]) -> Membership:
        """A leader deals the partitions out first."""
        members = [each.member_id for each in joined.members]
        assignments = []
        for number, member in enumerate(members):
            own = [TopicPartitions(topic=topic, partitions=list(partitions[number :: len(members)]))]
            assignment = encode_assignment(ConsumerProtocolAssignment(assigned_partitions=own), 0)
            assignments.append(SyncGroupRequestAssignment(member_id=member, assignment=assignment))
        asked = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments if joined.leader == joined.member_id else [],
        )
        answer = await self.ask(asked, seconds_max=JOIN_SECONDS_MAX)
        _check(answer.error_code)
        own = decode_assignment(answer.assignment).assigned_partitions
        given = tuple(partition for each in own for partition in each.partitions)
        return Membership(group, joined.member_id, joined.generation_id, given)

    async def heartbeat(self, member: Membership) -> None:
        answer = await self.ask(
            HeartbeatRequest(group_id=member.group, generation_id=member.generation, member_id=member.member_id)
        )
        _check(answer.error_code)

    async def leave(self, member: Membership) -> None:
        identity = MemberIdentity(member_id=member.member_id)
        asked = LeaveGroupRequest(group_id=member.group, member_id=member.member_id, members=[identity])
        _check((await self.ask(asked)).error_code)

    async def commit(self, member: Membership, topic: str, partition: int, *, offset: int, note: str) -> None:
        part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=note)
        asked = OffsetCommitRequest(
            group_id=member.group,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        _check((await self.ask(asked)).topics[0].partitions[0].error_code)

    async def committed(self, group: str, topic: str, partition: int) -> tuple[int, str]:
        """Offset and note; -1 where there is none."""
        if self.version(OffsetFetchRequest.api_key) >= 8:
            wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
            (answer,) = (await self.ask(asked)).groups
            _check(answer.error_code)
        else:
            one = OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])
            answer = await self.ask(OffsetFetchRequest(group_id=group, topics=[one]))
            _check(answer.error_code)
        found = answer.topics[0].partitions[0]
        _check(found.error_code)
        return found.committed_offset, found.metadata or ""


class Produces(Protocol):
    async def produce(self, topic: str, partition: int, batch: bytes) -> int: ...


class IdempotentProducer:
    """Sends each batch until it is answered, always the same bytes: one batch of it is under way at a time."""

    def __init__(self, client: Produces, topic: str, producer_id: int, *, pause_seconds: float) -> None:
        self._client = client
        self._topic = topic
        self._producer_id = ProducerId(producer_id)
        self._pause_seconds = pause_seconds
        self._next: dict[int, int] = {}

    async def send(self, partition: int, values: list[bytes], *, timestamp: int) -> int:
        sequence = self._next.get(partition, 0)
        self._next[partition] = sequence + len(values)
        batch = encode_values(
            values,
            timestamp=TimestampMs(timestamp),
            producer_id=self._producer_id,
            producer_epoch=ProducerEpoch(0),
            base_sequence=Sequence(sequence),
        )
        while True:
            with contextlib.suppress(Unanswered):
                return await self._client.produce(self._topic, partition, batch)
            await asyncio.sleep(self._pause_seconds)


def _produce_request(topic: str, partition: int, batch: bytes, *, acks: int) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def _produced(response: ProduceResponse) -> Produced:
    answer = response.responses[0].partition_responses[0]
    _check(answer.error_code, answer.error_message)
    return Produced(answer.base_offset)


def _check(code: int, said: str | None = None) -> None:
    if code in UNSURE:
        raise Unanswered(UNSURE[code])
    if code:
        raise Refused(code, said)
