"""aiokafka's clients that go on through whatever happens to a cluster, each a thread with a loop of its own.

An `AioStream` is an idempotent producer of numbered values, many of them under way; an `AioReader` is a group's one
member, that commits what it has read. What must hold of what they saw is in histories.py.
"""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from tests.interop.confluent import Reachable
from tests.interop.facts import new_name
from tests.interop.histories import PATIENCE_SECONDS, Read, Sent, value_of

PAUSE_SECONDS = 0.002
POLL_MS = 100
CLOSE_SECONDS_MAX = 30.0


class AioStream:
    def __init__(self, cluster: Reachable, topic: str, *, partitions: int) -> None:
        self.history = Sent(topic, partitions=partitions)
        self._address = cluster.address
        self._stopping = threading.Event()
        self._thread = _thread(self._send, self.history.errors)

    async def _send(self) -> None:
        history = self.history
        producer = AIOKafkaProducer(
            bootstrap_servers=self._address, enable_idempotence=True, acks="all", linger_ms=2, retry_backoff_ms=50
        )
        await producer.start()
        try:
            while not self._stopping.is_set():
                number = history.total
                partition = number % history.partitions
                answer = await producer.send(history.topic, value_of(number), partition=partition)
                history.total += 1
                answer.add_done_callback(functools.partial(self._on_answer, number))
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            await producer.stop()  # when everything that waits is acknowledged, or refused

    def _on_answer(self, number: int, answer: "asyncio.Future[object]") -> None:
        if (error := answer.exception()) is not None:
            self.history.errors.append(error)
            return
        self.history.acknowledged(number, offset=answer.result().offset)  # type: ignore[attr-defined]

    def finish(self) -> None:
        """Everything that was sent is acknowledged when this returns."""
        self.abandon()
        self.history.check_all_acknowledged()

    def abandon(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "aiokafka's producer cannot stop"


class AioReader:
    def __init__(self, cluster: Reachable, topic: str, *, partitions: int) -> None:
        self.history = Read(new_name("aiokafka-group"), partitions=partitions)
        self._topic = topic
        self._address = cluster.address
        self._stopping = threading.Event()
        self._thread = _thread(self._read, self.history.errors)

    async def _read(self) -> None:
        consumer = AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._address,
            group_id=self.history.group,
            # It commits before it stops: closing, aiokafka looks for no coordinator any more, and would wait for ever.
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
            retry_backoff_ms=50,
            fetch_max_wait_ms=50,
        )
        await consumer.start()
        try:
            while not self._stopping.is_set():
                await self._take(consumer)
        finally:
            await asyncio.wait_for(consumer.stop(), CLOSE_SECONDS_MAX)

    async def _take(self, consumer: AIOKafkaConsumer) -> None:
        ends = {}
        for at, records in (await consumer.getmany(timeout_ms=POLL_MS)).items():
            for record in records:
                self.history.note(int(record.value), partition=at.partition, offset=record.offset)
                ends[at] = record.offset + 1
        if not ends:
            return
        try:
            await consumer.commit(ends)
        except KafkaError:
            return  # the group is made anew, under a new coordinator: what was not committed may come again
        for at, end in ends.items():
            self.history.commits(at.partition, offset=end)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), f"{self.history.group} cannot stop"


def _thread(work: Callable[[], Coroutine[None, None, None]], errors: list[object]) -> threading.Thread:
    def run() -> None:
        try:
            asyncio.run(work())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="aiokafka", daemon=True)
    thread.start()
    return thread
