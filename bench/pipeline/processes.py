"""What Spark uses of the processor: its JVM, the Python workers below it, and everybody else."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.pipeline.chaos_processes import children

TICK = os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """Seconds of CPU, by process."""

    jvm: float
    by_worker: dict[int, float]

    @property
    def workers(self) -> float:
        return sum(self.by_worker.values())

    @property
    def total(self) -> float:
        return self.jvm + self.workers

    def since(self, before: "Used") -> "Used":
        """What a worker that has ended meanwhile used is lost: Spark ends those that had nothing to do for a minute."""
        workers = {pid: seconds - before.by_worker.get(pid, 0.0) for pid, seconds in self.by_worker.items()}
        return Used(self.jvm - before.jvm, workers)


def _seconds(pid: int) -> tuple[float, float]:
    """Its own, in user and kernel mode, and those of its children that have ended."""
    try:
        fields = list(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    except OSError:
        return 0.0, 0.0
    return sum(fields[:2]) / TICK, sum(fields[2:]) / TICK


def _below(pid: int) -> Iterator[int]:
    for each in children(pid):
        yield each
        yield from _below(each)


def used(jvm: int) -> Used:
    own, ended = _seconds(jvm)
    return Used(own, {jvm: ended} | {pid: _seconds(pid)[0] for pid in _below(jvm)})


def jvm_of(parent: int) -> int:
    for each in children(parent):
        if "java" in Path(f"/proc/{each}/cmdline").read_text():
            return each
    raise AssertionError("no JVM")


def others_seconds() -> float:
    """Of everybody on this machine but this process and those it started."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    mine = sum(_seconds(os.getpid())) + sum(_seconds(pid)[0] for pid in _below(os.getpid()))
    user, nice, system, _, _, interrupts, soft_interrupts = ticks[:7]
    return (user + nice + system + interrupts + soft_interrupts) / TICK - mine
