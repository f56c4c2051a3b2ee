"""Topics and the cluster: made, grown, deleted, described, and all that can be wrong with asking for it."""

from millpond.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from millpond.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from millpond.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from millpond.protocol.messages.describe_cluster import DescribeClusterRequest
from millpond.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from millpond.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from millpond.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.interop.beside_kafka.sides import Side

NODE = 1


def creating(side: Side) -> None:
    def make(label: str, *topics: CreatableTopic, version: int | None = None, validate_only: bool = False) -> None:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=5000, validate_only=validate_only)
        answer = side.ask("", request, version)
        if answer is not None:
            for each in answer.topics:
                each.configs = None if each.configs is None else []  # compared among the settings
        side.write(label, answer)

    def topic(name: str | None = None, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        name = side.new_name() if name is None else name
        return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=settings)

    def placed(*replicas: list[int], indexes: list[int] | None = None, partitions: int = -1) -> CreatableTopic:
        made = topic(partitions=partitions, replicas=-1)
        numbers = indexes or range(len(replicas))
        made.assignments = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=each)
            for number, each in zip(numbers, replicas, strict=True)
        ]
        return made

    known = topic()
    make("a topic", known)
    make("again", known)
    make("again, only asked", known, validate_only=True)
    make("only asked", topic(partitions=3), validate_only=True)
    make("defaults", topic(partitions=-1, replicas=-1))
    for label, name in (("empty", ""), ("dot", "."), ("dots", ".."), ("blank", "a b"), ("long", "x" * 250)):
        make(f"name: {label}", topic(name))
    make("name: as long as can be", topic("y" * 249))
    make("name: internal", topic("__consumer_offsets"))
    clash = side.new_name()
    make("name: with a dot", topic(f"{clash}.a"))
    make("name: the same with a line", topic(f"{clash}_a"))
    for partitions in (0, -2, -1):
        make(f"{partitions} partitions", topic(partitions=partitions))
    for replicas in (0, -2, 2, 100):
        make(f"{replicas} replicas", topic(replicas=replicas))
    make("the same twice", *[topic(f"{clash}-twice")] * 2)
    make("one good, one bad", topic(), topic(replicas=9))
    make("unknown setting", topic(no_such_setting="1"))
    make("bad value", topic(retention_ms="soon"))
    make("out of range", topic(max_message_bytes="-1"))
    make("bad value of a choice", topic(cleanup_policy="burn"))
    make("null value", topic(retention_ms=None))
    make("bad setting, only asked", topic(retention_ms="soon"), validate_only=True)
    make("placed", placed([NODE], [NODE]))
    make("placed and counted", placed([NODE], partitions=1))
    make("placed on nobody", placed([]))
    make("placed on a stranger", placed([99]))
    make("placed twice on one", placed([NODE, NODE]))
    make("placed with a gap", placed([NODE], [NODE], indexes=[0, 2]))
    make("placed twice", placed([NODE], [NODE], indexes=[0, 0]))
    make("nothing")
    for version in (2, 4, 5, 6):
        make(f"version {version}", topic(), version=version)
    make("defaults before they were", topic(partitions=-1, replicas=-1), version=3)


def growing(side: Side) -> None:
    name, other = side.new_name(), side.new_name()
    side.create(name, partitions=2)
    side.create(other, partitions=2)

    def grow(label: str, count: int, *replicas: list[int], topic: str = name, only_asked: bool = False) -> None:
        placed = [CreatePartitionsAssignment(broker_ids=each) for each in replicas] if replicas else None
        asked = CreatePartitionsTopic(name=topic, count=count, assignments=placed)
        side.ask(label, CreatePartitionsRequest(topics=[asked], timeout_ms=5000, validate_only=only_asked))

    grow("only asked", 4, only_asked=True)
    grow("fewer, only asked", 1, only_asked=True)
    grow("as many as there are", 2)
    for count in (3, 2, 1, 0, -1):
        grow(f"to {count}", count)
    grow("unknown topic", 3, topic="no-such")
    grow("bad name", 3, topic="no topic!")
    grow("internal", 100, topic="__consumer_offsets")
    grow("placed", 4, [NODE])
    grow("placed too few", 6, [NODE])
    grow("placed too many", 5, [NODE], [NODE])
    grow("placed on a stranger", 5, [99])
    grow("placed with more replicas", 5, [NODE, 99])
    grow("placed on nobody", 5, [])
    asked = [CreatePartitionsTopic(name=other, count=count, assignments=None) for count in (3, 4)]
    side.ask("twice", CreatePartitionsRequest(topics=asked, timeout_ms=5000))
    side.ask("nothing", CreatePartitionsRequest(topics=[], timeout_ms=5000))
    side.ask("how many", metadata(name))


def metadata(*names: str, create_them: bool = False, ids: tuple[bytes, ...] = ()) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    topics += [MetadataRequestTopic(topic_id=each, name=None) for each in ids]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create_them)


def deleting(side: Side) -> None:
    names = [side.new_name() for _ in range(4)]
    ids = [side.create(name) for name in names]

    def delete(label: str, *topics: DeleteTopicState) -> None:
        side.ask(label, DeleteTopicsRequest(topics=list(topics), timeout_ms=5000))

    delete("by name", DeleteTopicState(name=names[0]))
    delete("again", DeleteTopicState(name=names[0]))
    delete("by id", DeleteTopicState(topic_id=ids[1]))
    delete("by id again", DeleteTopicState(topic_id=ids[1]))
    delete("by both", DeleteTopicState(name=names[2], topic_id=ids[2]))
    delete("by neither", DeleteTopicState())
    delete("bad name", DeleteTopicState(name="no topic!"))
    delete("empty name", DeleteTopicState(name=""))
    delete("twice", *[DeleteTopicState(name=names[3])] * 2)
    delete("by name and by id", DeleteTopicState(name=names[3]), DeleteTopicState(topic_id=ids[3]))
    delete("nothing")
    side.ask("version 5", DeleteTopicsRequest(topic_names=[names[2], "no-such"], timeout_ms=5000), 5)
    side.ask("version 1", DeleteTopicsRequest(topic_names=["no-such"], timeout_ms=5000), 1)


def describing(side: Side) -> None:
    name = side.new_name()
    topic_id = side.create(name, partitions=3)

    def about(label: str, request: MetadataRequest, version: int | None = None) -> None:
        answer = side.ask("", request, version)
        side.write(label, answer.topics if answer is not None else "closed")

    about("a topic", metadata(name))
    about("by id", metadata(ids=(topic_id,)))
    about("by an unknown id", metadata(ids=(b"\1" * 16,)))
    about("unknown", metadata(side.new_name()))
    about("bad name", metadata("no topic!"))
    about("bad name, made", metadata("no topic!", create_them=True))
    about("empty name", metadata(""))
    about("made", metadata(side.new_name(), create_them=True))
    about("twice", metadata(name, name))
    about("none", MetadataRequest(topics=[]))
    both = MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=topic_id)])
    about("by both", both)
    operations = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)],
        include_topic_authorized_operations=True,
        allow_auto_topic_creation=False,
    )
    about("with what is allowed", operations)
    for version in (0, 1, 4, 7, 8, 9, 10, 11):
        about(f"version {version}", MetadataRequest(topics=[MetadataRequestTopic(name=name)]), version)
    about("null topic before ids", MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=topic_id)]), 10)

    def partitions(label: str, *names: str, limit: int = 2000, cursor: Cursor | None = None) -> None:
        topics = [TopicRequest(name=each) for each in names]
        request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
        side.ask(label, request)

    partitions("partitions", name)
    partitions("two at a time", name, limit=2)
    partitions("go on", name, cursor=Cursor(topic_name=name, partition_index=2))
    partitions("go on behind the end", name, cursor=Cursor(topic_name=name, partition_index=9))
    partitions("go on at a stranger", name, cursor=Cursor(topic_name="zzz", partition_index=0))
    partitions("negative cursor", name, cursor=Cursor(topic_name=name, partition_index=-1))
    partitions("unknown ones", "no-such", "no topic!")
    partitions("no limit", name, limit=0)
    partitions("partitions twice", name, name)


def cluster(side: Side) -> None:
    name = side.new_name()
    side.create(name, partitions=2)
    side.ask("cluster", DescribeClusterRequest())
    side.ask("what is allowed", DescribeClusterRequest(include_cluster_authorized_operations=True))
    side.ask("controllers", DescribeClusterRequest(endpoint_type=2))
    side.ask("endpoints nobody knows", DescribeClusterRequest(endpoint_type=9))
    side.ask("fenced ones too", DescribeClusterRequest(include_fenced_brokers=True))

    def elect(label: str, *partitions: int, kind: int = 0, topic: str = name) -> None:
        asked = [TopicPartitions(topic=topic, partitions=list(partitions))]
        side.ask(label, ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=5000))

    elect("preferred", 0, 1)
    elect("unclean", 0, kind=1)
    elect("a kind nobody knows", 0, kind=7)
    elect("unknown partition", 9)
    elect("unknown topic", 0, topic="no-such")
    elect("twice", 0, 0)
    side.ask("version 0", ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=name, partitions=[0])]), 0)
    everything = side.ask("", ElectLeadersRequest(topic_partitions=None, timeout_ms=5000))
    side.write("everywhere", [everything.error_code, len(everything.replica_election_results)])

    def directories(label: str, topics: list[DescribableLogDirTopic] | None) -> None:
        side.ask(label, DescribeLogDirsRequest(topics=topics), 4)

    directories("directories", [DescribableLogDirTopic(topic=name, partitions=[0, 1, 5])])
    directories("directories of a stranger", [DescribableLogDirTopic(topic="no-such", partitions=[0])])
    directories("directories of none", [])


SCENES = {
    "create topics": creating,
    "create partitions": growing,
    "delete topics": deleting,
    "metadata": describing,
    "cluster": cluster,
}
