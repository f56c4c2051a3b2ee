"""A client that behaves, beside the fuzz: produces, reads back, keeps its place in a group; it must notice nothing.

Its topic has settings of its own for all that matters, so that no change of a broker's defaults is its concern.
Driven by run.py.
"""

import asyncio
import itertools
import random
from typing import Any

from millpond.model.ids import TimestampMs
from millpond.protocol.messages.fields import Message
from millpond.protocol.records import encode_values
from tests.fuzz.batches import NOW_MS
from tests.simulation.wire_client import Membership, WireClient

TOPIC = "neighbour"
GROUP = "neighbours"
CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
}
ANSWER_SECONDS_MAX = 60.0
"""Only a broker that hangs takes so long."""


class PatientClient(WireClient):
    async def ask(self, message: Message, *, seconds_max: float = ANSWER_SECONDS_MAX) -> Any:  # noqa: ANN401
        return await super().ask(message, seconds_max=max(seconds_max, ANSWER_SECONDS_MAX))


class Neighbour:
    def __init__(self, port: int, seed: int) -> None:
        self._client = PatientClient(host="127.0.0.1", port=port, client_id=TOPIC, rng=random.Random(seed))
        self._member: Membership
        self.values: list[bytes] = []
        """What was acknowledged, in order."""
        self.seconds_max = 0.0
        """The longest round."""

    async def move_in(self) -> None:
        client = self._client
        assert await client.create_topic(TOPIC, partitions=1, configs=CONFIGS) == 0
        joined = await client.join(GROUP, TOPIC, "")
        self._member = await client.sync(GROUP, TOPIC, joined, (0,))

    async def live(self, stop: asyncio.Event) -> None:
        """Round after round, until told to stop. What it finds wrong, it raises."""
        loop = asyncio.get_running_loop()
        for number in itertools.count():
            if stop.is_set():
                return
            began = loop.time()
            await self._round(b"%d" % number)
            self.seconds_max = max(self.seconds_max, loop.time() - began)

    async def _round(self, value: bytes) -> None:
        client, offset = self._client, len(self.values)
        given = await client.produce(TOPIC, 0, encode_values([value], timestamp=TimestampMs(NOW_MS)))
        assert given == offset, f"{given} where {offset} had to come: somebody else wrote, or something was lost"
        self.values.append(value)
        read = await client.fetch(TOPIC, 0, start=offset, bytes_max=1 << 20, wait_ms=0)
        assert read.records == ((offset, value),), read
        await client.heartbeat(self._member)
        await client.commit(self._member, TOPIC, 0, offset=offset, note=value.decode())
        assert await client.committed(GROUP, TOPIC, 0) == (offset, value.decode())

    async def read_all(self) -> list[bytes]:
        values: list[bytes] = []
        while True:
            read = await self._client.fetch(TOPIC, 0, start=len(values), bytes_max=1 << 20, wait_ms=0)
            values += [value for _, value in read.records]
            if len(values) >= read.end or not read.records:
                return values

    def close(self) -> None:
        self._client.close()
