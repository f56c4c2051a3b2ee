"""Plugins by entry point: what other packages offer to a broker, found by name.

Driven by process.py, when a broker starts.
"""

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from millpond.core.groups import assignors, stores
from millpond.core.groups.assignors import Assignor
from millpond.core.groups.stores import OffsetStore
from millpond.model.errors import InvalidSetting


def load_offset_store(url: str) -> OffsetStore:
    """`redis://host/0` is handed to the entry point named `redis`."""
    make = _load(stores.ENTRY_POINTS, url.partition(":")[0], setting=f"offset-store is {url!r}")
    store: OffsetStore = make(url)
    return store


def load_assignor(name: str) -> Assignor:
    setting = f"group.consumer.assignors has {name!r}"
    found: Assignor = _load(assignors.ENTRY_POINTS, name, setting=setting, own=assignors.ASSIGNORS)
    return found


def _load(group: str, name: str, *, setting: str, own: Iterable[str] = ()) -> Callable[..., Any]:
    """`own` are the names that need no package."""
    offered: dict[str, EntryPoint] = {each.name: each for each in entry_points(group=group)}
    if name not in offered:
        there = ", ".join([*own, *sorted(offered)]) or "none"
        raise InvalidSetting(
            f"{setting}, and no installed package offers {name!r} (entry points {group}); there are: {there}. "
            "Install the package that does, or correct the name"
        )
    found: Callable[..., Any] = offered[name].load()
    return found
