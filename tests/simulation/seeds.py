"""`make seeds`: for each planted bug a seed that finds it, and what found it; records them in found_at.json.

Begins at the recorded seed, and stops at the first that finds the bug. With `fastest`, so many seeds more are tried,
and the one is recorded that found it with the least CPU; CI pays for it each time. What found nothing keeps its seed.
Driven by __main__.py.
"""

import gc
import json
import re
import time
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.simulation.planted import FOUND_AT, Planted, everywhere, recorded

LOSSES_MAX = 3
"""Seeds in a row that were no faster than the best so far, where it is already below `FAST_SECONDS`."""
FAST_SECONDS = 1.0


class Found(NamedTuple):
    seed: int
    cpu_seconds: float
    tried: int
    spent_seconds: float
    """Until the first seed found it: what a test costs that begins at the recorded one."""
    by: str


def look(console: Console, names: Sequence[str], *, fastest: int) -> int:
    """How many were not found."""
    wanted = [each for each in everywhere() if not names or str(each) in names or each.world in names]
    unknown = set(names) - {str(each) for each in wanted} - {each.world for each in wanted}
    if unknown:
        console.print(f"[red]no planted bug and no world[/] is called {', '.join(sorted(unknown))}")
        return len(unknown)
    table = Table("bug", "world", "recorded", "found at", "tried", "CPU s until found", "CPU s from now on", "by")
    lost, before, after = 0, 0.0, 0.0
    for planted in wanted:
        was = planted.found_at
        found = find(planted, fastest=fastest)
        if found is None:
            lost += 1
            table.add_row(str(planted), planted.world, f"{was}", "[red]none[/]", f"{planted.seeds_max}")
            continue
        record(planted, found.seed)
        before, after = before + found.spent_seconds, after + found.cpu_seconds
        now = f"{found.seed}" if found.seed == was else f"[yellow]{found.seed}[/]"
        costs = f"{found.spent_seconds:.1f}", f"{found.cpu_seconds:.1f}"
        by = escape(re.sub(r"\s+", " ", found.by)[:60])
        table.add_row(str(planted), planted.world, f"{was}", now, f"{found.tried}", *costs, by)
        console.print(f"{planted.world}: {planted} at {found.seed}: {' s, now '.join(costs)} s")
    console.print(table)
    console.print(f"CPU seconds until all were found: {before:.0f}; from now on: {after:.0f}")
    return lost


def find(planted: Planted, *, fastest: int = 0) -> Found | None:
    best: Found | None = None
    after = losses = first_tried = 0
    spent = 0.0
    for tried, seed in enumerate(planted.seeds(), start=1):
        by, cpu_seconds = try_seed(planted, seed)
        if best is None:
            spent, first_tried = spent + cpu_seconds, tried
        else:
            after, losses = after + 1, losses + 1
        if by is not None and (best is None or cpu_seconds < best.cpu_seconds):
            best, losses = Found(seed, cpu_seconds, first_tried, spent, by), 0
        if best is not None and (after >= fastest or (losses >= LOSSES_MAX and best.cpu_seconds < FAST_SECONDS)):
            break
    return best


def try_seed(planted: Planted, seed: int) -> tuple[str | None, float]:
    """What found the bug, if anything did, and how long that took."""
    began = time.process_time()
    by = None
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # worlds that end in their midst leave coroutines behind
        planted.plant(patch)
        try:
            planted.run_seed(seed)
        except planted.caught_by as error:
            if planted.named is None or re.search(planted.named, str(error)):
                by = f"{type(error).__name__}: {error}"
        except Exception:
            pass  # a bug may show in ways that its test does not take for being found
        took = time.process_time() - began
        gc.collect()
    return by, took


def record(planted: Planted, seed: int) -> None:
    seeds = recorded()
    seeds.setdefault(planted.world, {})[str(planted)] = seed
    FOUND_AT.write_text(json.dumps(seeds, indent=2) + "\n")
