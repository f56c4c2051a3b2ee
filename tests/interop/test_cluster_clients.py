"""Stock clients keep producing and consuming while the brokers of their cluster are killed, stopped and paused: nothing
is lost, nothing comes twice, and committed offsets survive."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.interop.cluster_processes import ClusterProcesses
from tests.interop.confluent import new_admin, new_consumer, read_from_start, values_of
from tests.interop.facts import FACT_SECONDS_MAX, new_name, until
from tests.interop.foreign_client import ForeignClient
from tests.interop.traffic import PATIENCE_SECONDS, PROTOCOLS, Reader, Stream, check_log, check_reader

pytestmark = pytest.mark.slow
PARTITIONS = 3
MORE = 300
JAVA_MESSAGES = 12_000


def new_topic(cluster: ClusterProcesses, *, partitions: int = PARTITIONS) -> str:
    name = new_name("topic")
    admin = new_admin(cluster)
    asked = admin.create_topics([NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})])
    asked[name].result(FACT_SECONDS_MAX)
    return name


def kill_the_leader(cluster: ClusterProcesses, topic: str, stream: Stream) -> None:
    leader = cluster.leader_of(topic)
    leader.kill()
    cluster.wait(lambda _: cluster.leader_of(topic) is not leader, what="another leads")
    stream.wait_more(MORE)
    leader.start()


def kill_the_controller(cluster: ClusterProcesses, topic: str, stream: Stream) -> None:
    controller = cluster.controller()
    controller.kill()
    stream.wait_more(MORE)
    cluster.wait(lambda _: cluster.controller() is not controller, what="another is the controller")
    controller.start()


def pause_the_leader_beyond_its_session(cluster: ClusterProcesses, topic: str, stream: Stream) -> None:
    leader = cluster.leader_of(topic)
    leader.pause()
    cluster.wait(
        lambda state: any(each.node_id == leader.node_id and each.state == "fenced" for each in state.brokers),
        what="the paused broker is fenced",
    )
    stream.wait_more(MORE)
    leader.resume()


def restart_one_after_the_other(cluster: ClusterProcesses, topic: str, stream: Stream) -> None:
    for broker in cluster.brokers.values():
        broker.stop()
        broker.start()
        cluster.wait_healthy()


FAULTS: dict[str, Callable[[ClusterProcesses, str, Stream], None]] = {
    each.__name__: each
    for each in (
        kill_the_leader,
        kill_the_controller,
        pause_the_leader_beyond_its_session,
        restart_one_after_the_other,
    )
}


@pytest.mark.parametrize("fault", FAULTS)
def test_confluent_clients_go_on_without_a_loss_or_a_duplicate(cluster: ClusterProcesses, fault: str) -> None:
    cluster.wait_healthy()
    topic = new_topic(cluster)
    stream = Stream(cluster, topic, partitions=PARTITIONS)
    readers = [Reader(cluster, topic, protocol, partitions=PARTITIONS) for protocol in PROTOCOLS]
    try:
        stream.wait_more(MORE)
        FAULTS[fault](cluster, topic, stream)
        cluster.wait_healthy()
        stream.wait_more(MORE)
        stream.finish()
        check_log(cluster, stream)
        for reader in readers:
            reader.wait_all(stream)
    finally:
        stream.abandon()
        for reader in readers:
            reader.close()
    for reader in readers:
        check_reader(reader, stream)
        assert_committed(cluster, topic, reader, stream)


def assert_committed(cluster: ClusterProcesses, topic: str, reader: Reader, stream: Stream) -> None:
    """What the group has committed is what it was told it had."""
    asking = new_consumer(cluster, group_id=reader.group)
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    kept = {each.partition: each.offset for each in asking.committed(places, timeout=PATIENCE_SECONDS)}
    asking.close()
    for partition, sent in stream.sent.items():
        assert reader.committed[partition] <= kept[partition] <= len(sent)


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_aiokafka_clients_go_on_when_their_leader_is_gone(cluster: ClusterProcesses, end: str) -> None:
    cluster.wait_healthy()
    topic = new_topic(cluster, partitions=1)

    async def work() -> list[bytes | None]:
        settings = {"bootstrap_servers": cluster.address, "retry_backoff_ms": 50}
        producer = AIOKafkaProducer(**settings, enable_idempotence=True)
        # It commits before it stops: closing, aiokafka looks for no coordinator any more, and would wait for ever.
        reading = {"group_id": new_name("group"), "auto_offset_reset": "earliest", "enable_auto_commit": False}
        consumer = AIOKafkaConsumer(topic, **settings, **reading)
        await producer.start()
        await consumer.start()
        seen = []
        try:
            await producer.send_and_wait(topic, b"before")
            seen.append((await consumer.getone()).value)
            leader = await asyncio.to_thread(cluster.leader_of, topic)
            await asyncio.to_thread(leader.kill if end == "killed" else leader.stop)
            await producer.send_and_wait(topic, b"meanwhile")
            await asyncio.to_thread(leader.start)
            await producer.send_and_wait(topic, b"after")
            seen += [(await consumer.getone()).value for _ in range(2)]
            await consumer.commit()
        finally:
            await consumer.stop()
            await producer.stop()
        return seen

    assert asyncio.run(asyncio.wait_for(work(), PATIENCE_SECONDS)) == [b"before", b"meanwhile", b"after"]


@pytest.mark.parametrize("fault", ["leader killed", "controller killed"])
def test_javas_producer_goes_on_without_a_loss_or_a_duplicate(
    cluster: ClusterProcesses, cluster_java: ForeignClient, fault: str
) -> None:
    cluster.wait_healthy()
    topic = new_topic(cluster, partitions=1)
    small_batches = {"batch.size": 1_000, "buffer.memory": 50_000, "retry.backoff.ms": 50}
    cluster_java.ask("flow", topic=topic, count=JAVA_MESSAGES, settings=small_batches)

    def wait_acknowledged(count: int) -> None:
        for _ in until(
            lambda: cluster_java.ask("flowed") >= count, what=f"{count} acknowledged", seconds_max=PATIENCE_SECONDS
        ):
            threading.Event().wait(0.005)

    wait_acknowledged(500)
    broker = cluster.leader_of(topic) if fault == "leader killed" else cluster.controller()
    broker.kill()
    assert cluster_java.ask("flowed") < JAVA_MESSAGES, "the broker ended before the producer did"
    wait_acknowledged(JAVA_MESSAGES)
    broker.start()
    assert cluster_java.ask("wait_flow") == []
    wanted = [b"%d" % number for number in range(JAVA_MESSAGES)]
    assert values_of(read_from_start(cluster, topic, JAVA_MESSAGES)) == wanted
