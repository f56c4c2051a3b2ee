"""Waiting for a fact instead of for a while, and names that no other test uses."""

import itertools
import time
from collections.abc import Callable, Iterator

FACT_SECONDS_MAX = 20.0

_numbers = itertools.count(1)


def new_name(kind: str) -> str:
    return f"{kind}-{next(_numbers)}"


def until(fact: Callable[[], object], *, what: str, seconds_max: float = FACT_SECONDS_MAX) -> Iterator[None]:
    """Goes round until the fact holds: `for _ in until(...)`. The body waits for something, a poll for instance."""
    deadline = time.monotonic() + seconds_max
    while not fact():
        assert time.monotonic() < deadline, f"after {seconds_max} s still not: {what}"
        yield
