"""Kafka's own share consumer, of librdkafka by confluent-kafka, on Millpond's queues. It blocks, so it has a thread."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import ShareConsumer

from bench.queues.millpond import GROUP

_JOIN_SECONDS = 1.5
"""By then it knows its partitions: twice what members wait between heartbeats, nearly."""
_POLL_SECONDS = 0.5
_CRITICAL = 2
_COMMIT_SECONDS = 10.0


class ConfluentReceiver:
    def __init__(self, port: int, topic: str, *, at_once: int) -> None:
        self._consumer = ShareConsumer(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "group.id": GROUP,
                "max.poll.records": at_once,
                "log_level": _CRITICAL,
            }
        )
        self._consumer.subscribe([topic])
        # One thread, also for the end: it may not be used by two, and whoever gives up waiting does not stop it.
        self._thread = ThreadPoolExecutor(1)

    async def join(self) -> None:
        """Of a queue that is empty."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._consumer.poll, _JOIN_SECONDS)

    async def turn(self) -> int:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._turn)

    def _turn(self) -> int:
        messages = self._consumer.poll(_POLL_SECONDS)
        for message in messages:
            if (error := message.error()) is not None:
                raise RuntimeError(str(error))
        if messages:
            refused = [error for error in self._consumer.commit_sync(_COMMIT_SECONDS).values() if error is not None]
            if refused:
                raise RuntimeError(str(refused[0]))
        return len(messages)

    async def finish(self) -> None:
        """Every acknowledgement was answered."""

    def close(self) -> None:
        self._thread.submit(self._consumer.close)
        self._thread.shutdown()
