"""Metrics on their way into a topic, as `millpond pipeline generate` sends them.

Invariant: what is counted is acknowledged.
Driven by pipeline.py and pipeline_demo.py.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from millpond.app.clock import SystemClock
from millpond.client import Admin, Producer
from millpond.model.errors import InvalidSetting
from millpond.model.values import dataclass
from millpond.pipeline.generating import Load, arrivals

PARTITIONS: Final = 4
PER_SECOND: Final = 1_000
"""By which messages that are sent all at once are stamped."""
_MS_PER_SECOND: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratePlan:
    messages: int
    rate: int | None
    clients: int
    faults: tuple[float, float, float]
    """Shares that are sent twice, late, malformed."""
    seed: int
    topic: str


def parse_faults(text: str) -> tuple[float, float, float]:
    try:
        twice, late, malformed = (float(each) for each in text.split(","))
    except ValueError:
        twice = late = malformed = -1.0
    if min(twice, late, malformed) < 0 or twice + late + malformed > 1:
        raise InvalidSetting(
            f"--faults is {text!r}; it is three shares of 1 with commas between, such as 0.05,0.02,0.01"
        )
    return twice, late, malformed


def generate_metrics(bootstrap: str, plan: GeneratePlan) -> int:
    with watched("metrics sent", plan.messages) as sent:
        asyncio.run(_send(bootstrap, plan, sent))
    return plan.messages


async def _send(bootstrap: str, plan: GeneratePlan, sent: Callable[[int], object]) -> None:
    clock = SystemClock()
    per_second = plan.rate or PER_SECOND
    seconds = 0 if plan.rate else plan.messages // per_second
    twice, late, malformed = plan.faults
    load = Load(
        messages=plan.messages,
        start_ms=clock.wall_ms() - seconds * _MS_PER_SECOND,
        per_second=per_second,
        clients=plan.clients,
        duplicates=twice,
        late=late,
        malformed=malformed,
        seed=plan.seed,
    )
    async with Admin(bootstrap) as admin:
        if plan.topic not in await admin.topics():
            await admin.create_topic(plan.topic, partitions=PARTITIONS)
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with Producer(bootstrap, compression="lz4") as producer:
        for number, (at_ms, keys, values) in enumerate(arrivals(load)):
            if plan.rate:
                await asyncio.sleep(started + number - loop.time())
            await producer.send_many(plan.topic, values, keys=keys, timestamp=at_ms)
            sent(len(values))


@contextmanager
def watched(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """A bar, for whoever watches."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
