"""Metrics as many clients would send them, some of them twice, late or broken: for trying the pipeline, and testing it.

Invariant: the same load is the same messages, byte by byte. Messages are in the order in which they arrive, and those
of one client have one key.
Pure: chance comes from the load's seed, time from its start. Driven by `millpond pipeline generate`, and by tests.
"""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

METRICS: Final = ("cpu.percent", "memory.bytes", "requests.seconds", "errors.count")
ZONES: Final = ("north", "south", "east", "west")
RECENT: Final = 5_000
"""Of these, some are sent again."""
ON_TIME_MS_MAX: Final = 20_000
LATE_MS: Final = (600_000, 3_600_000)
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    messages: int
    start_ms: int
    """When the first one arrives."""
    per_second: int = 1_000
    """By the clock that `start_ms` is of."""
    clients: int = 50
    duplicates: float = 0.05
    late: float = 0.02
    malformed: float = 0.01
    seed: int = 0


class Arrivals(NamedTuple):
    """What arrives within a second."""

    at_ms: int
    keys: list[bytes]
    values: list[bytes]


def arrivals(load: Load) -> Iterator[Arrivals]:
    rng = random.Random(load.seed)
    recent: deque[tuple[bytes, bytes]] = deque(maxlen=RECENT)
    made, now = 0, load.start_ms
    while made < load.messages:
        count = min(load.per_second, load.messages - made)
        pairs = [_message(load, rng, recent, now) for _ in range(count)]
        yield Arrivals(now, [key for key, _ in pairs], [value for _, value in pairs])
        made += count
        now += 1000


def _message(load: Load, rng: random.Random, recent: deque[tuple[bytes, bytes]], now: int) -> tuple[bytes, bytes]:
    chance = rng.random()
    if chance < load.duplicates and recent:
        return recent[rng.randrange(len(recent))]
    client = f"client-{rng.randrange(load.clients):04}"
    document: dict[str, object] = {
        "client_id": client,
        "metric": rng.choice(METRICS),
        "value": round(rng.lognormvariate(2, 1), 3),
        "timestamp": now - rng.randrange(ON_TIME_MS_MAX),
        "tags": {"zone": rng.choice(ZONES), "host": f"host-{rng.randrange(load.clients * 2):04}"},
    }
    chance -= load.duplicates
    if 0 <= chance < load.malformed:
        return client.encode(), _broken(rng, document, now)
    if 0 <= chance - load.malformed < load.late:
        document["timestamp"] = now - rng.randrange(*LATE_MS)
    message = client.encode(), msgspec.json.encode(document)
    recent.append(message)
    return message


def _broken(rng: random.Random, document: dict[str, object], now: int) -> bytes:
    match rng.randrange(5):
        case 0:
            return msgspec.json.encode(document)[: rng.randrange(1, 40)]
        case 1:
            return msgspec.json.encode(document | {"value": "high"})
        case 2:
            return msgspec.json.encode({name: each for name, each in document.items() if name != "client_id"})
        case 3:
            return msgspec.json.encode(document | {"timestamp": now + _DAY_MS})
        case _:
            return msgspec.json.encode(document | {"timestamp": None})
