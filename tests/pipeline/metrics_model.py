"""What the metrics pipeline has to come to, computed in plain Python from what a plain consumer reads."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millpond.client import Message
from millpond.pipeline.metrics import AHEAD_SECONDS_MAX, RESOLUTIONS_MS

Fact = tuple[str, str, int, float, str]
Window = tuple[str, str, str, int]


@dataclass(slots=True)
class Truth:
    ingested: int = 0
    dead: dict[str, bytes] = field(default_factory=dict)
    """By partition and offset, the value."""
    facts: dict[Fact, bool] = field(default_factory=dict)
    """And whether it was late."""

    def rollups(self) -> dict[Window, tuple[float, ...]]:
        found: dict[Window, list[float]] = defaultdict(list)
        for (client, metric, time, value, _), late in self.facts.items():
            if not late:
                for name, width in RESOLUTIONS_MS.items():
                    found[client, metric, name, time // width * width].append(value)
        return {window: _summary(values) for window, values in found.items()}


def _summary(values: list[float]) -> tuple[float, ...]:
    shares = np.percentile(values, [50, 95, 99])
    total = sum(values)
    return (len(values), total, min(values), max(values), total / len(values), *map(float, shares))


def truth(messages: Iterable[Message], *, lateness_seconds: int) -> Truth:
    """Messages of one partition come in order; those of one client are in one partition."""
    found = Truth()
    for message in messages:
        found.ingested += 1
        metric = _metric(message)
        if metric is None:
            found.dead[f"{message.partition}-{message.offset}"] = message.value or b""
        else:
            found.facts.setdefault(metric, metric[2] < message.timestamp - 1000 * lateness_seconds)
    return found


def _metric(message: Message) -> Fact | None:
    try:
        said: Any = json.loads(message.value or b"")
        client, metric, time, value = (said.get(name) for name in ("client_id", "metric", "timestamp", "value"))
    except (ValueError, AttributeError):
        return None
    is_good = isinstance(client, str) and isinstance(metric, str) and isinstance(value, float | int)
    if not is_good or not isinstance(time, int) or time > message.timestamp + 1000 * AHEAD_SECONDS_MAX:
        return None
    return client, metric, time, float(value), json.dumps(said.get("tags") or {}, sort_keys=True)
