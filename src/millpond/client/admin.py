"""Looking after topics, settings, groups and the cluster.

    async with Admin("localhost:9092") as admin:
        await admin.create_topic("orders", partitions=3)

Invariant: a call returns when what it asked for is so on the broker that was asked, or raises the reason of our tree;
calls that can be repeated without harm are tried again while nobody answers.
Groups are in admin_groups.py. Belongs to the loop it was made in.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from millpond.client.admin_delays import DELAY_SETTING, DelayAdmin, DelayPage
from millpond.client.admin_groups import GroupDescription, GroupListing, Groups, PartitionLag, Target
from millpond.client.cluster import Cluster
from millpond.client.offsets import EARLIEST, LATEST, offsets_at
from millpond.client.refusals import NONE, refusal
from millpond.client.settings import ClientSettings
from millpond.model.errors import ClientClosed, TopicAlreadyExists, UnknownTopicOrPartition, WrongUse
from millpond.model.ids import Offset, TopicPartition
from millpond.model.values import dataclass
from millpond.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from millpond.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millpond.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from millpond.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from millpond.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from millpond.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from millpond.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
GROUP_RESOURCE: Final = 32
SET, DELETE = 0, 1
_DEFAULT_SOURCE: Final = 5

Moment = Literal["earliest", "latest"] | int
"""A time is in milliseconds."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[PartitionInfo]


@dataclass(frozen=True, slots=True)
class Setting:
    value: str | None
    is_default: bool
    is_read_only: bool


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    cluster_id: str
    controller: int | None
    brokers: list[BrokerInfo]


class Admin:
    def __init__(self, bootstrap: str | Sequence[str] = "localhost:9092", **options: Any) -> None:  # noqa: ANN401
        """The options are those of `ClientSettings`."""
        self._settings = ClientSettings.of(bootstrap, options)
        self._cluster: Cluster
        self._groups: Groups
        self._delays: DelayAdmin
        self._is_open = False

    async def start(self) -> None:
        self._cluster = Cluster(self._settings)
        self._groups = Groups(self._cluster)
        self._delays = DelayAdmin(self._cluster)
        try:
            await self._cluster.start()
        except BaseException:
            await self._cluster.close()
            raise
        self._is_open = True

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _try(self, work: Callable[[], Awaitable[Result]]) -> Result:
        if not self._is_open:
            raise ClientClosed("this admin client is not open: use it inside `async with`, or call start() first")
        # What an operator names and is not there would not come by being asked for again.
        return await self._cluster.retrying(work, final=UnknownTopicOrPartition)

    # Topics

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        validate_only: bool = False,
    ) -> None:
        """-1 leaves a number to the cluster."""
        _check_texts(configs or {})
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )

        async def create() -> None:
            request = CreateTopicsRequest(topics=[topic], validate_only=validate_only, timeout_ms=self._timeout_ms)
            answer = await self._cluster.ask(request, CreateTopicsResponse)
            for each in answer.topics:
                _check(each.error_code, each.error_message, of=f"topic {name}")

        try:
            await self._try(create)
        except TopicAlreadyExists:
            if not exist_ok:
                raise

    async def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        async def delete() -> None:
            request = DeleteTopicsRequest(
                topic_names=[name], topics=[DeleteTopicState(name=name)], timeout_ms=self._timeout_ms
            )
            answer = await self._cluster.ask(request, DeleteTopicsResponse)
            for each in answer.responses:
                _check(each.error_code, each.error_message, of=f"topic {name}")

        try:
            await self._try(delete)
        except UnknownTopicOrPartition:
            if not missing_ok:
                raise

    async def add_partitions(self, name: str, *, total: int) -> None:
        """So that the topic has `total`; keys may belong elsewhere from then on."""

        async def add() -> None:
            topic = CreatePartitionsTopic(name=name, count=total, assignments=None)
            request = CreatePartitionsRequest(topics=[topic], timeout_ms=self._timeout_ms)
            answer = await self._cluster.ask(request, CreatePartitionsResponse)
            for each in answer.results:
                _check(each.error_code, each.error_message, of=f"topic {name}")

        await self._try(add)

    async def topics(self, *, internal: bool = False) -> list[str]:
        """All names, in order; Millpond's own topics only where asked for."""
        found = await self._look(None)
        return sorted(each.name for each in found if internal or not each.is_internal)

    async def describe_topic(self, name: str) -> TopicInfo:
        (found,) = await self._look([name])
        return found

    async def describe_topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """All, in the order of their names."""
        found = await self._look(None)
        return sorted((each for each in found if internal or not each.is_internal), key=lambda each: each.name)

    async def offsets_at(self, moments: Mapping[TopicPartition, Moment]) -> dict[TopicPartition, Offset]:
        """Where a partition starts ("earliest"), ends ("latest"), or has its first message not older than a time."""
        asked = {
            at: EARLIEST if moment == "earliest" else LATEST if moment == "latest" else max(0, moment)
            for at, moment in moments.items()
        }
        return await self._try(lambda: offsets_at(self._cluster, asked))

    async def _look(self, names: Collection[str] | None) -> list[TopicInfo]:
        async def look() -> list[TopicInfo]:
            refused = await self._cluster.refresh(names)
            for name, code in refused.items():
                if names is not None:
                    _check(code, None, of=f"topic {name}")
            view = self._cluster.view
            return [
                TopicInfo(
                    topic.name,
                    topic.topic_id,
                    topic.is_internal,
                    [
                        PartitionInfo(
                            each.partition_index,
                            each.leader_id if each.leader_id >= 0 else None,
                            list(each.replica_nodes),
                            list(each.isr_nodes),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in view.topics.values()
                if names is None or topic.name in names
            ]

        if names is None:
            self._cluster.view.topics.clear()  # or deleted ones would stay
        return await self._try(look)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """Everything before these offsets; -1 for everything there is. The offsets the partitions now begin with."""
        by_node: dict[int, list[TopicPartition]] = {}
        for topic in {at.topic for at in before}:
            await self._cluster.topic(topic)
        for at in before:
            leader = self._cluster.view.leader_of(at)
            if leader is None:
                raise refusal(6, "nobody leads it at the moment", of=str(at))
            by_node.setdefault(leader.node, []).append(at)
        starts: dict[TopicPartition, Offset] = {}
        for node, places in by_node.items():
            topics: dict[str, list[DeleteRecordsPartition]] = {}
            for at in places:
                wish = DeleteRecordsPartition(partition_index=at.partition, offset=before[at])
                topics.setdefault(at.topic, []).append(wish)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=name, partitions=each) for name, each in topics.items()],
                timeout_ms=self._timeout_ms,
            )
            answer = await self._cluster.ask(request, DeleteRecordsResponse, node=node)
            for found in answer.topics:
                for part in found.partitions:
                    at = TopicPartition(found.name, part.partition_index)
                    _check(part.error_code, None, of=str(at))
                    starts[at] = Offset(part.low_watermark)
        return starts

    # Settings

    async def topic_configs(self, name: str) -> dict[str, Setting]:
        return await self._try(lambda: self._configs(TOPIC_RESOURCE, name, f"topic {name}"))

    async def broker_configs(self, node_id: int) -> dict[str, Setting]:
        return await self._try(lambda: self._configs(BROKER_RESOURCE, str(node_id), f"broker {node_id}"))

    async def group_configs(self, group: str) -> dict[str, Setting]:
        return await self._try(lambda: self._configs(GROUP_RESOURCE, group, f"group {group}"))

    async def _configs(self, kind: int, name: str, of: str) -> dict[str, Setting]:
        node = int(name) if kind == BROKER_RESOURCE else None
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        answer = await self._cluster.ask(
            DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, node=node
        )
        (result,) = answer.results
        _check(result.error_code, result.error_message, of=of)
        return {
            each.name: Setting(each.value, each.config_source == _DEFAULT_SOURCE, each.read_only)
            for each in result.configs
        }

    async def alter_topic(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Only these change; None puts one back to its default."""
        await self._try(lambda: self._alter(TOPIC_RESOURCE, name, configs, f"topic {name}"))

    async def alter_broker(self, node_id: int | None, configs: Mapping[str, str | None]) -> None:
        """Of one broker, or of all."""
        name = "" if node_id is None else str(node_id)
        of = "all brokers" if node_id is None else f"broker {node_id}"
        await self._try(lambda: self._alter(BROKER_RESOURCE, name, configs, of))

    async def alter_group(self, group: str, configs: Mapping[str, str | None]) -> None:
        """Whether it is there yet or not."""
        await self._try(lambda: self._alter(GROUP_RESOURCE, group, configs, f"group {group}"))

    async def _alter(self, kind: int, name: str, configs: Mapping[str, str | None], of: str) -> None:
        _check_texts(configs)
        changes = [
            AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in configs.items()
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        answer = await self._cluster.ask(
            IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
        )
        for each in answer.responses:
            _check(each.error_code, each.error_message, of=of)

    # Groups

    async def groups(self) -> dict[str, GroupListing]:
        """Every group, by name, with its state; also those of queues that nobody ever joined."""
        return await self._try(self._groups.listed)

    async def describe_group(self, group: str) -> GroupDescription:
        return await self._try(lambda: self._groups.describe(group))

    async def group_offsets(self, group: str) -> dict[TopicPartition, Offset]:
        """What it has committed; of a queue's group, the first messages that it is not done with."""
        return await self._try(lambda: self._groups.offsets(group))

    async def group_lag(self, group: str) -> list[PartitionLag]:
        """How far it is behind, in messages and seconds, in each partition that it has committed an offset of,
        or that a member has."""
        return await self._try(lambda: self._groups.lag(group))

    async def reset_group(
        self, group: str, to: Target, *, topics: Collection[str] | None = None, dry_run: bool = False
    ) -> dict[TopicPartition, Offset]:
        """Where the group goes on; only while nobody is in it.

        `to` is "earliest", "latest", a time in milliseconds as {"timestamp": …}, a step as {"shift": -100}, or offsets
        by partition. `topics` are those it has offsets of, where none are named. With a dry run nothing changes.
        """
        return await self._try(lambda: self._groups.reset(group, to, topics=topics, dry_run=dry_run))

    async def delete_group(self, group: str) -> None:
        """Only while nobody is in it; its offsets go with it."""
        await self._try(lambda: self._groups.delete(group))

    # The cluster

    async def cluster(self) -> ClusterInfo:
        async def look() -> ClusterInfo:
            answer = await self._cluster.ask(
                DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse
            )
            _check(answer.error_code, answer.error_message, of="the cluster")
            return ClusterInfo(
                answer.cluster_id,
                answer.controller_id if answer.controller_id >= 0 else None,
                [
                    BrokerInfo(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
                    for each in answer.brokers
                ],
            )

        return await self._try(look)

    # Delayed messages

    async def let_delay(self, topic: str) -> None:
        """So that what is sent there with a delay is delayed, from now on: a topic that is not there is made, and one
        that was never told whether it delays messages does. One that was told not to stays as it is; `WrongUse`."""
        if topic not in await self.topics():
            await self.create_topic(topic, configs={DELAY_SETTING: "on"}, exist_ok=True)
        configs = await self.topic_configs(topic)
        setting = configs.get(DELAY_SETTING)
        if setting is None:
            raise WrongUse(f"topic {topic} cannot delay messages: its brokers have no setting {DELAY_SETTING}")
        if setting.value != "on":
            if not setting.is_default or "compact" in (configs["cleanup.policy"].value or ""):
                raise WrongUse(
                    f"topic {topic} delays no messages; set its {DELAY_SETTING} to on, without the policy compact"
                )
            await self.alter_topic(topic, {DELAY_SETTING: "on"})
        await self._delays.wait_on(topic)

    async def delays(
        self, topic: str, *, partition: int | None = None, after: str | None = None, count: int = 100
    ) -> DelayPage:
        """Messages that wait to be delivered, in the order in which they are due. `after` is the `cursor` of the last
        of the page before."""
        return await self._try(lambda: self._delays.page(topic, partition=partition, after=after, count=count))

    async def cancel_delay(self, message_id: str) -> None:
        """It will not be delivered; a schedule will not fire again. The id is topic/partition/offset."""
        await self._try(lambda: self._delays.alter(message_id, None))

    async def reschedule_delay(self, message_id: str, due_ms: int) -> None:
        """Milliseconds since 1970; what is past means at once."""
        await self._try(lambda: self._delays.alter(message_id, due_ms))

    @property
    def _timeout_ms(self) -> int:
        return int(self._settings.request_seconds_max * 1000)


def _check_texts(configs: Mapping[str, str | None]) -> None:
    for name, value in configs.items():
        if value is not None and not isinstance(value, str):
            raise WrongUse(f"{name} is {value!r}; values of settings are text, such as {str(value).lower()!r}")


def _check(code: int, reason: str | None, *, of: str) -> None:
    if code != NONE:
        raise refusal(code, reason, of=of)
