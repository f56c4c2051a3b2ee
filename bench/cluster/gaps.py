"""How long a producer gets no acknowledgement when a broker is killed, or restarted in order.

A stock producer sends a message every millisecond or so, acks=all, to one partition with three replicas. A kill's time
runs from the signal until a message is acknowledged that was produced after it. Each kill is met by a producer of its
own: librdkafka waits longer from one connection to a broker to the next, up to 10 s, and forgets of it only after 10 s
without any; through kills every other second, one and the same producer measures that.
"""

import threading
import time
from collections.abc import Sequence
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from bench.broker.driving import MESSAGE
from bench.cluster.cluster import BROKERS, RunningCluster
from bench.measuring import Row, Target, percentile

_PAUSE_SECONDS = 0.001
_PATIENCE_SECONDS = 60.0
_WANTED_SECONDS = 1.5


class SteadyProducer:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 2}
        )
        self._topic = topic
        self._stopping = threading.Event()
        self._news = threading.Condition()
        self._newest = 0.0
        """When the newest acknowledged message was produced."""
        self._acknowledged_at = time.perf_counter()
        self.gap_s = 0.0
        """The longest time between two acknowledgements; whoever wants one begins by setting it to 0."""
        self.errors: list[KafkaError] = []
        self._thread = threading.Thread(target=self._send, name="steady-producer")
        self._thread.start()

    def _send(self) -> None:
        while not self._stopping.is_set():
            produced = time.perf_counter()
            try:
                on_delivery = partial(self._on_delivery, produced)
                self._producer.produce(self._topic, MESSAGE, partition=0, on_delivery=on_delivery)
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(_PAUSE_SECONDS)
        self._producer.flush(_PATIENCE_SECONDS)

    def _on_delivery(self, produced: float, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        now = time.perf_counter()
        with self._news:
            self.gap_s = max(self.gap_s, now - self._acknowledged_at)
            self._acknowledged_at = now
            self._newest = max(self._newest, produced)
            self._news.notify_all()

    def wait_acknowledged(self, produced_after: float) -> float:
        """When it was."""
        with self._news:
            if not self._news.wait_for(lambda: self._newest > produced_after, _PATIENCE_SECONDS):
                raise TimeoutError(f"nothing was acknowledged for {_PATIENCE_SECONDS:.0f} s")
            return self._acknowledged_at

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(2 * _PATIENCE_SECONDS)
        if self.errors:
            raise RuntimeError(f"{len(self.errors)} messages were not delivered: {self.errors[0]}")


def failovers(cluster: RunningCluster, topic: str, *, kills: int) -> list[float]:
    """Seconds, ascending."""
    cluster.make_topic(topic, partitions=1)
    return sorted(_failover(cluster, topic) for _ in range(kills))


def _failover(cluster: RunningCluster, topic: str) -> float:
    producer = SteadyProducer(cluster.bootstrap, topic)
    try:
        producer.wait_acknowledged(time.perf_counter())
        leader = cluster.leader_of(topic)
        killed = time.perf_counter()
        cluster.kill(leader)
        seconds = producer.wait_acknowledged(killed) - killed
    finally:
        producer.close()
    cluster.start(leader)
    cluster.wait_in_sync()
    return seconds


def restart_gap(cluster: RunningCluster, topic: str) -> float:
    """The longest time without an acknowledgement while each broker is stopped in order and started again, in turns."""
    cluster.make_topic(topic, partitions=1)
    producer = SteadyProducer(cluster.bootstrap, topic)
    try:
        producer.wait_acknowledged(time.perf_counter())
        producer.gap_s = 0.0
        for number in BROKERS:
            cluster.stop_one(number)
            cluster.start(number)
            cluster.wait_in_sync()
        producer.wait_acknowledged(time.perf_counter())
        return producer.gap_s
    finally:
        producer.close()


def rows(ascending: Sequence[float]) -> list[Row]:
    values, what = list(ascending), f"{len(ascending)} kills"
    p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
    return [
        Row(section="failover", name=f"{what}, p50", value=p50, unit="s"),
        Row(section="failover", name=f"{what}, p99", value=p99, unit="s", target=Target("value", most=_WANTED_SECONDS)),
    ]
