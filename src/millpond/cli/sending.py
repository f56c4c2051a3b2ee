"""Lines on their way into a topic.

Invariant: what is counted is acknowledged. A line that cannot be read ends the work after all lines before it are sent,
and is named with its number.
Driven by produce.py.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Final

from millpond.cli.message_formats import Parsed, parse_json
from millpond.cli.session import client_options
from millpond.cli.streams import lines
from millpond.client import Admin, Producer
from millpond.model.errors import InvalidSetting
from millpond.model.values import dataclass
from millpond.protocol.records import Headers

PACE_SECONDS: Final = 0.05
"""With a rate, messages go in portions of so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    topic: str
    file: str | None
    values: Sequence[bytes] | None
    is_json: bool
    key: bytes | None
    key_separator: bytes | None
    headers: Headers
    partition: int | None
    by_message: bool
    """A partition is chosen for every message, and not for a batch of those without a key."""
    rate: float | None
    create: bool

    @property
    def is_plain(self) -> bool:
        """A line is a value, and nothing else, and goes wherever a batch goes."""
        return self.is_simple and self.key_separator is None and self.key is None and not self.by_message

    @property
    def is_simple(self) -> bool:
        """Messages have values and keys at most; many of them go at once."""
        return not self.is_json and not self.headers

    def parse(self, line: bytes) -> Parsed:
        if self.is_json:
            parsed = parse_json(line)
            key = self.key if parsed.key is None else parsed.key
            return parsed._replace(key=key, headers=(*self.headers, *parsed.headers))
        if self.key_separator is None:
            return Parsed(line, self.key, self.headers)
        key, found, value = line.partition(self.key_separator)
        if not found:
            raise InvalidSetting(
                f"{line[:60].decode(errors='replace')!r} has no {self.key_separator.decode(errors='replace')!r} in it"
            )
        return Parsed(value, key, self.headers)


@dataclass(slots=True)
class Place:
    """Of the messages in one partition."""

    messages: int
    first: int
    last: int


@dataclass(slots=True)
class Sent:
    messages: int = 0
    bytes: int = 0
    places: dict[int, Place] = field(default_factory=dict)

    def add(self, partition: int, offset: int, count: int = 1) -> None:
        self.messages += count
        last = offset + count - 1 if offset >= 0 else offset
        place = self.places.get(partition)
        if place is None:
            self.places[partition] = Place(count, offset, last)
        else:
            place.messages += count
            place.first, place.last = min(place.first, offset), max(place.last, last)

    def document(self, topic: str) -> dict[str, object]:
        return {
            "topic": topic,
            "messages": self.messages,
            "bytes": self.bytes,
            "partitions": [
                {
                    "partition": partition,
                    "messages": place.messages,
                    "first_offset": place.first if place.first >= 0 else None,
                    "last_offset": place.last if place.last >= 0 else None,
                }
                for partition, place in sorted(self.places.items())
            ],
        }


def send(
    bootstrap: str, timeout: float, job: Job, settings: dict[str, Any], *, on_interrupt: Callable[[str], None]
) -> dict[str, object]:
    sent = Sent()
    with _source(job) as descriptor, _progress(job, descriptor) as advance:

        async def work() -> None:
            options = client_options(timeout)
            if not job.create:
                async with Admin(bootstrap, **options) as admin:
                    await admin.describe_topic(job.topic)
            producer = Producer(
                bootstrap, **options, **settings, delivery_seconds_max=timeout, create_topics=job.create
            )
            async with producer:
                await _send_all(producer, job, _portions(job, descriptor), sent, advance)

        try:
            asyncio.run(work())
        except KeyboardInterrupt:
            on_interrupt(f"interrupted; {sent.messages} messages were acknowledged")
            raise
    return sent.document(job.topic)


@contextmanager
def _source(job: Job) -> Iterator[int]:
    if job.values is not None:
        yield -1
    elif job.file is None or job.file == "-":
        if sys.stdin is None:  # a shell's <&-
            raise InvalidSetting("stdin is closed; send messages through it, or give --file or --value")
        yield sys.stdin.fileno()
    else:
        try:
            descriptor = os.open(job.file, os.O_RDONLY)
        except OSError as error:
            raise InvalidSetting(
                f"--file is {job.file!r}, which cannot be read ({error.strerror}); name a file that is there"
            ) from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def _progress(job: Job, descriptor: int) -> Iterator[Callable[[int], object]]:
    """A bar for whoever watches a file go."""
    if job.file in (None, "-") or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(job.topic, total=os.fstat(descriptor).st_size)
        yield lambda count: progress.advance(task, count)


async def _portions(job: Job, descriptor: int) -> AsyncIterator[list[bytes]]:
    """Lines, not faster than the rate allows."""
    loop = asyncio.get_running_loop()
    started, passed = loop.time(), 0
    step = max(1, int(job.rate * PACE_SECONDS)) if job.rate else 0
    async for chunk in _given(job.values) if job.values is not None else lines(descriptor):
        if not step or job.rate is None:
            yield chunk
            continue
        for place in range(0, len(chunk), step):
            await asyncio.sleep(started + passed / job.rate - loop.time())
            portion = chunk[place : place + step]
            passed += len(portion)
            yield portion


async def _given(values: Sequence[bytes]) -> AsyncIterator[list[bytes]]:
    yield list(values)


async def _send_all(
    producer: Producer, job: Job, portions: AsyncIterator[list[bytes]], sent: Sent, advance: Callable[[int], object]
) -> None:
    async for portion in portions:
        problem: InvalidSetting | None = None
        if job.is_plain:
            for written in await producer.send_many(job.topic, portion, partition=job.partition):
                sent.add(written.partition, written.offset, written.count)
        else:
            problem = await _send_parsed(producer, job, portion, sent)
        if problem is not None:
            raise InvalidSetting(
                f"line {sent.messages + 1}: {problem}; all lines before it are sent, so correct it and go on from there"
            )
        size = sum(map(len, portion))
        sent.bytes += size
        advance(size + len(portion))


async def _send_parsed(producer: Producer, job: Job, portion: Sequence[bytes], sent: Sent) -> InvalidSetting | None:
    """What is wrong with a line; all before it are sent."""
    problem: InvalidSetting | None = None
    good: list[Parsed] = []
    for line in portion:
        try:
            good.append(job.parse(line))
        except InvalidSetting as error:
            problem = error
            break
    if job.is_simple:
        values, keys = [each.value or b"" for each in good], [each.key for each in good]
        for written in await producer.send_many(job.topic, values, keys=keys, partition=job.partition):
            sent.add(written.partition, written.offset, written.count)
        return problem
    deliveries = [
        await producer.send_soon(
            job.topic,
            each.value,
            key=each.key,
            headers=each.headers,
            partition=job.partition,
            timestamp=each.timestamp,
        )
        for each in good
    ]
    for delivery in deliveries:
        where = await delivery
        sent.add(where.partition, where.offset)
    return problem
