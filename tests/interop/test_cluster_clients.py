"""Stock clients keep producing and consuming while the brokers of their cluster are killed, stopped and paused, and
while their partitions move from broker to broker: nothing is lost, nothing comes twice, and committed offsets survive.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewTopic

from millpond.model.ids import TopicPartition as At
from millpond.pipeline.options import write_options
from millpond.pipeline.sink import write_all
from millpond.pipeline.tokens import Commit
from tests.interop.aiokafka_traffic import AioReader, AioStream
from tests.interop.cluster_processes import ClusterProcesses
from tests.interop.confluent import new_admin, new_consumer
from tests.interop.facts import FACT_SECONDS_MAX, new_name
from tests.interop.foreign_client import ForeignClient
from tests.interop.histories import PATIENCE_SECONDS, Read, Sent
from tests.interop.java_traffic import JavaReader, JavaStream
from tests.interop.movements import move
from tests.interop.test_java_groups import BOTH
from tests.interop.traffic import PROTOCOLS, Reader, Stream, check_log
from tests.pipeline.topics import everything

pytestmark = pytest.mark.slow
PARTITIONS = 3
MORE = 300
OFFSETS_TOPIC = "__consumer_offsets"


class Producing(Protocol):
    """Of whatever client, from when it is made."""

    @property
    def history(self) -> Sent: ...

    def finish(self) -> None: ...

    def abandon(self) -> None: ...


class Consuming(Protocol):
    @property
    def history(self) -> Read: ...

    def close(self) -> None: ...


def new_topic(cluster: ClusterProcesses, *, partitions: int = PARTITIONS) -> str:
    name = new_name("topic")
    admin = new_admin(cluster)
    asked = admin.create_topics([NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})])
    asked[name].result(FACT_SECONDS_MAX)
    return name


def kill_the_leader(cluster: ClusterProcesses, sent: Sent) -> None:
    leader = cluster.leader_of(sent.topic)
    leader.kill()
    cluster.wait(lambda _: cluster.leader_of(sent.topic) is not leader, what="another leads")
    sent.wait_more(MORE)
    leader.start()


def kill_the_controller(cluster: ClusterProcesses, sent: Sent) -> None:
    controller = cluster.controller()
    controller.kill()
    sent.wait_more(MORE)
    cluster.wait(lambda _: cluster.controller() is not controller, what="another is the controller")
    controller.start()


def pause_the_leader_beyond_its_session(cluster: ClusterProcesses, sent: Sent) -> None:
    leader = cluster.leader_of(sent.topic)
    leader.pause()
    cluster.wait(
        lambda state: any(each.node_id == leader.node_id and each.state == "fenced" for each in state.brokers),
        what="the paused broker is fenced",
    )
    sent.wait_more(MORE)
    leader.resume()


def restart_one_after_the_other(cluster: ClusterProcesses, sent: Sent) -> None:
    for broker in cluster.brokers.values():
        broker.stop()
        broker.start()
        cluster.wait_healthy()


def move_every_partition_off_its_leader(cluster: ClusterProcesses, sent: Sent) -> None:
    """Onto the two other brokers, three times over, and at last onto all three again; those that keep the offsets of
    groups, and with them their coordinators, too."""
    everybody = set(cluster.brokers)

    def leaders() -> dict[At, int | None]:
        partitions = cluster.wait_healthy().every_partition
        wanted = (sent.topic, OFFSETS_TOPIC)
        return {At(each.topic, each.partition): each.leader for each in partitions if each.topic in wanted}

    for _ in range(3):
        move(cluster, {at: sorted(everybody - {leader}) for at, leader in leaders().items()})
        sent.wait_more(MORE)
    move(cluster, {at: sorted(everybody) for at in leaders()})


FAULTS: dict[str, Callable[[ClusterProcesses, Sent], None]] = {
    each.__name__: each
    for each in (
        kill_the_leader,
        kill_the_controller,
        pause_the_leader_beyond_its_session,
        restart_one_after_the_other,
        move_every_partition_off_its_leader,
    )
}


FAULTS_FOR_JAVA = [name for name in FAULTS if not name.startswith("pause")]
FAULTS_FOR_AIOKAFKA = [name for name in FAULTS_FOR_JAVA if name != kill_the_controller.__name__]
"""Fewer, since each takes seconds: to these clients a controller is a broker like others."""


def check_through(
    fault: str, cluster: ClusterProcesses, begin: Callable[[str], tuple[Producing, Sequence[Consuming]]]
) -> None:
    """`begin` makes the clients of a topic: one that produces, and those that read it, each a group of its own."""
    cluster.wait_healthy()
    topic = new_topic(cluster)
    stream, readers = begin(topic)
    sent = stream.history
    try:
        sent.wait_more(MORE)
        for reader in readers:
            reader.history.wait_committed()
        FAULTS[fault](cluster, sent)
        cluster.wait_healthy()
        sent.wait_more(MORE)
        stream.finish()
        check_log(cluster, sent)
        for reader in readers:
            reader.history.wait_all(sent)
    finally:
        stream.abandon()
        for reader in readers:
            reader.close()
    for reader in readers:
        reader.history.check(sent)
        check_committed(cluster, reader.history, sent)


def check_committed(cluster: ClusterProcesses, read: Read, sent: Sent) -> None:
    """What the group has committed is what it was told it had."""
    asking = new_consumer(cluster, group_id=read.group)
    places = [TopicPartition(sent.topic, partition) for partition in range(sent.partitions)]
    kept = {each.partition: each.offset for each in asking.committed(places, timeout=PATIENCE_SECONDS)}
    asking.close()
    for partition, numbers in sent.numbers.items():
        assert read.committed[partition] <= kept[partition] <= len(numbers)


def test_an_admin_client_does_not_wait_for_a_controller_that_was_killed(cluster: ClusterProcesses) -> None:
    """It asks whoever it was told takes changes, and looks again only when its connection is lost."""
    for _ in range(3):
        admin, before, after = new_admin(cluster), new_name("topic"), new_name("topic")
        admin.create_topics([NewTopic(before, 1, 3)])[before].result(FACT_SECONDS_MAX)
        controller = cluster.controller()
        controller.kill()
        admin.create_topics([NewTopic(after, 1, 3)])[after].result(FACT_SECONDS_MAX)
        controller.start()
        cluster.wait_healthy()


@pytest.mark.parametrize("fault", FAULTS)
def test_confluent_clients_go_on_without_a_loss_or_a_duplicate(cluster: ClusterProcesses, fault: str) -> None:
    def begin(topic: str) -> tuple[Stream, list[Reader]]:
        readers = [Reader(cluster, topic, protocol, partitions=PARTITIONS) for protocol in PROTOCOLS]
        return Stream(cluster, topic, partitions=PARTITIONS), readers

    check_through(fault, cluster, begin)


@pytest.mark.parametrize("fault", [kill_the_leader.__name__, restart_one_after_the_other.__name__])
def test_two_members_of_a_group_go_on_without_a_loss_or_a_duplicate(cluster: ClusterProcesses, fault: str) -> None:
    def begin(topic: str) -> tuple[Stream, list[Reader]]:
        readers = [Reader(cluster, topic, protocol, partitions=PARTITIONS) for protocol in PROTOCOLS]
        readers += [Reader(cluster, topic, each.protocol, partitions=PARTITIONS, beside=each) for each in readers]
        return Stream(cluster, topic, partitions=PARTITIONS), readers

    check_through(fault, cluster, begin)


@pytest.mark.parametrize("fault", FAULTS_FOR_AIOKAFKA)
def test_aiokafka_clients_go_on_without_a_loss_or_a_duplicate(cluster: ClusterProcesses, fault: str) -> None:
    def begin(topic: str) -> tuple[AioStream, list[AioReader]]:
        readers = [AioReader(cluster, topic, partitions=PARTITIONS)]
        return AioStream(cluster, topic, partitions=PARTITIONS), readers

    check_through(fault, cluster, begin)


@pytest.mark.parametrize("fault", FAULTS_FOR_JAVA)
def test_java_clients_go_on_without_a_loss_or_a_duplicate(
    cluster: ClusterProcesses, cluster_java: ForeignClient, fault: str
) -> None:
    def begin(topic: str) -> tuple[JavaStream, list[JavaReader]]:
        readers = [JavaReader(cluster_java, topic, protocol, partitions=PARTITIONS) for protocol in BOTH]
        return JavaStream(cluster_java, topic, partitions=PARTITIONS), readers

    check_through(fault, cluster, begin)


class TaskDied(Exception):
    """In the place of a kill of Spark's worker."""


def test_what_spark_writes_is_there_once_though_its_task_and_the_leader_die(cluster: ClusterProcesses) -> None:
    """Half of a commit is written when both die; the next try sends the same numbers, and another leader knows them."""
    cluster.wait_healthy()
    topic = new_topic(cluster, partitions=1)
    given = {"bootstrap.servers": cluster.address, "topic": topic, "kafka.batch.size": "500"}
    options = write_options(given | {"commit.name": "a query"}, is_stream=False)

    def rows(commit: int, *, until: int = 100) -> Iterator[pa.RecordBatch]:
        for start in range(0, until, 10):
            values = [b"commit %d, row %d" % (commit, number) for number in range(start, start + 10)]
            yield pa.record_batch({"value": pa.array(values, pa.binary())})
        if until < 100:
            raise TaskDied

    write_all(options, Commit("a query", 0), rows(0))
    with pytest.raises(TaskDied):
        write_all(options, Commit("a query", 1), rows(1, until=60))
    victim = cluster.leader_of(topic)
    victim.kill()
    write_all(options, Commit("a query", 1), rows(1))
    write_all(options, Commit("a query", 1), rows(1))
    victim.start()
    cluster.wait_healthy()
    found = [each.value for each in everything(cluster.address, topic)]
    assert found == [b"commit %d, row %d" % (commit, number) for commit in (0, 1) for number in range(100)]
