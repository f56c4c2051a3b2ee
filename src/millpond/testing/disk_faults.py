"""What can go wrong on a simulated disk, and when: power cuts, planned failures, slow or lying syncs, a full disk.

Invariant: every operation asks here first, once; after a power cut no operation happens until `restore_power`.
Pure apart from the `Rng`, `spend` and `trace` handed in. Driven by testing/disk.py; tests reach it through `SimDisk`.
"""

import os
import sys
import threading
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Literal

from millpond.model.ports import Rng
from millpond.model.values import dataclass

Operation = Literal[
    "open",
    "list",
    "read",
    "map",
    "create",
    "write",
    "sync",
    "truncate",
    "rename",
    "remove",
    "make_directory",
    "remove_directory",
    "sync_directory",
]

LOOKS: tuple[Operation, ...] = ("open", "list", "read", "map")
"""These can fail, but change nothing and are not counted: cutting the power there is cutting it at the next change."""


class PowerCut(BaseException):
    """The machine is off. Not an Exception, because nothing in the process lives on to handle it."""


def failure(error: int, path: str, target: str | None = None) -> OSError:
    """The OSError, in the subclass its number asks for, worded as the operating system words it."""
    return OSError(error, os.strerror(error), path, None, target)


@dataclass(slots=True)
class Fault:
    """One planned failure; `hits` says how often it has struck."""

    operation: Operation
    error: int
    path_pattern: str
    after: int
    """Matching operations to let pass first."""
    times: int | None
    """How often to strike; None for ever."""
    hits: int = 0

    def strikes(self, operation: Operation, path: str) -> bool:
        if operation != self.operation or self.hits == self.times or not fnmatchcase(path, self.path_pattern):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.hits += 1
        return True


class Machine:
    """The machine around the disk: whether it is on, how full it is, and whether an operation happens."""

    def __init__(
        self,
        rng: Rng,
        *,
        capacity_bytes: int | None,
        spend: Callable[[float], None] | None,
        trace: Callable[..., None] | None,
    ) -> None:
        self.rng = rng
        self.lock = threading.RLock()  # the port allows a sync in another thread, beside reads and writes
        self.operations = 0
        self.open_files = 0
        self.boot = 0
        """How often the power came back; a handle of an earlier boot is dead."""
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.faults: list[Fault] = []
        self.sync_lies = False
        self.sync_seconds = (0.0, 0.0)
        self.cut_at: int | None = None
        self.on_power_cut: Callable[[], None] | None = None
        self._power_is_out = False
        self._spend = spend
        self._trace = trace

    def require_power(self) -> None:
        if self._power_is_out:
            raise PowerCut

    def restore_power(self) -> None:
        self.drop_handles()
        self.cut_at = None
        self._power_is_out = False

    def drop_handles(self) -> None:
        self.boot += 1
        self.open_files = 0

    def look(self, operation: Operation, path: str, *details: int) -> None:
        """For what changes nothing: raises if it must fail."""
        if (interruption := self.interruption(operation, path, *details)) is not None:
            raise interruption

    def change(self, operation: Operation, path: str, effect: Callable[[], None], *details: int | str) -> None:
        """For what happens as a whole or not at all. When the power goes in its midst, one of the two."""
        interruption = self.interruption(operation, path, *details)
        if interruption is None:
            effect()
            return
        if isinstance(interruption, PowerCut) and self.rng.random() < 0.5:
            effect()
        raise interruption

    def interruption(self, operation: Operation, path: str, *details: int | str) -> BaseException | None:
        """Traces and counts an operation about to happen; what this returns is to be raised instead."""
        self.require_power()
        if self._trace is not None:
            self._trace(operation, path, *details)
        if operation not in LOOKS:
            self.operations += 1
            if self.operations == self.cut_at:
                self._power_is_out = True
                if self.on_power_cut is not None:
                    self.on_power_cut()
                return PowerCut(f"at {operation} of {path}")
        for fault in self.faults:
            if fault.strikes(operation, path):
                return failure(fault.error, path)
        return None

    def room_bytes(self) -> int:
        return sys.maxsize if self.capacity_bytes is None else max(0, self.capacity_bytes - self.used_bytes)

    def spend_on_sync(self) -> None:
        seconds_min, seconds_max = self.sync_seconds
        if self._spend is not None and seconds_max > 0:
            self._spend(self.rng.uniform(seconds_min, seconds_max))
