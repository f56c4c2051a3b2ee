"""A topic's messages on their way to stdout.

Invariant: with a group, what is committed has been written; what could not be written is read again. Without
`follow` it ends where the partitions ended when it began.
Driven by consume.py.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from millpond.app.clock import SystemClock
from millpond.cli.message_formats import Writer
from millpond.cli.moments import parse_moment
from millpond.cli.session import client_options
from millpond.cli.showing import note
from millpond.cli.streams import write
from millpond.client import Admin, Consumer, TopicPartition
from millpond.model.errors import InvalidSetting, RequestTimedOut
from millpond.model.ids import Offset
from millpond.model.values import dataclass

POLL_MESSAGES: Final = 1_000
POLL_SECONDS: Final = 0.1
"""Between two looks at whether the end is reached."""

Edge = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class Since:
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Last:
    """So many of each partition."""

    messages: int


Start = Edge | Offset | Since | Last
Ends = Mapping[TopicPartition, Offset]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    topic: str
    start: Start
    group: str | None
    partitions: list[int] | None
    follow: bool
    count: int | None
    write: Writer


def parse_start(start: str | None, from_time: str | None) -> Start:
    if from_time is not None:
        return Since(parse_moment("--from-time", from_time, now_ms=SystemClock().wall_ms()))
    match start:
        case None | "earliest":
            return "earliest"
        case "latest":
            return "latest"
    if re.fullmatch(r"-[0-9]{1,18}", start):
        return Last(-int(start))
    if re.fullmatch(r"[0-9]{1,18}", start):
        return Offset(int(start))
    raise InvalidSetting(
        f"--from is {start[:80]!r}; allowed is earliest, latest, an offset such as 42, or -10 for the last 10; "
        "for a time there is --from-time"
    )


def read(bootstrap: str, timeout: float, job: Job) -> None:
    asyncio.run(_read(bootstrap, job, client_options(timeout), patience=timeout))


async def _read(bootstrap: str, job: Job, options: dict[str, Any], *, patience: float) -> None:
    places, ends = await _ends(bootstrap, job, options)
    if job.group is None:
        async with Consumer(bootstrap, **options) as consumer:
            await consumer.assign(*places)
            _seek(consumer, job, ends)
            await copy(consumer, job, ends, patience=patience)
    else:
        reset = "latest" if job.start == "latest" else "earliest"
        async with Consumer(bootstrap, topics=[job.topic], group=job.group, reset=reset, **options) as consumer:
            await copy(consumer, job, ends, patience=patience)


async def _ends(bootstrap: str, job: Job, options: dict[str, Any]) -> tuple[list[TopicPartition], Ends]:
    async with Admin(bootstrap, **options) as admin:
        there = [each.partition for each in (await admin.describe_topic(job.topic)).partitions]
        for wanted in job.partitions or ():
            if wanted not in there:
                raise InvalidSetting(f"--partition is {wanted}; topic {job.topic} has 0 to {len(there) - 1}")
        places = [TopicPartition(job.topic, number) for number in job.partitions or there]
        return places, await admin.offsets_at(dict.fromkeys(places, "latest"))


def _seek(consumer: Consumer, job: Job, ends: Ends) -> None:
    match job.start:
        case "earliest":
            consumer.seek_to_start()
        case "latest":
            for at, end in ends.items():
                consumer.seek(at, end)
        case Since(timestamp_ms):
            consumer.seek_to_time(timestamp_ms)
        case Last(messages):
            for at, end in ends.items():
                consumer.seek(at, max(0, end - messages))
        case offset:
            if offset > max(ends.values()):
                where = ", ".join(f"{at} at {end}" for at, end in ends.items())
                raise InvalidSetting(f"--from is {offset}, and there is no such offset yet; the ends are: {where}")
            for at, end in ends.items():
                consumer.seek(at, min(offset, end))


async def copy(consumer: Consumer, job: Job, ends: Ends, *, patience: float) -> None:
    """Until the end, or for ever; where the end is not reached and nothing comes, only as long as patience lasts."""
    seen = 0
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while job.count is None or seen < job.count:
        if not job.follow and _is_through(consumer, ends):
            return
        room = POLL_MESSAGES if job.count is None else min(POLL_MESSAGES, job.count - seen)
        messages = await consumer.poll(room, timeout=POLL_SECONDS)
        if messages:
            await write(job.write(messages))
            seen += len(messages)
            until = loop.time() + patience
        elif not job.follow and loop.time() > until:
            if consumer.assignment:
                raise RequestTimedOut(
                    f"topic {job.topic}: nothing came for {patience:g} s, and its end is not reached; look at it with "
                    "millpond topics describe, or wait longer with --timeout"
                )
            note(f"group {job.group} has other members, and they have every partition of {job.topic}")
            return


def _is_through(consumer: Consumer, ends: Ends) -> bool:
    """Everything that was there is read, in the partitions this consumer has; it has some."""
    positions = {at: consumer.position(at) for at in consumer.assignment}
    return bool(positions) and all(
        position is not None and position >= ends.get(at, position) for at, position in positions.items()
    )
