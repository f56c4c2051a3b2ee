"""What Spark uses of the processor: its JVM, the Python workers below it, and everybody else."""

import os
from pathlib import Path
from typing import NamedTuple

from tests.pipeline.chaos_processes import children

TICK = os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """Seconds of CPU."""

    jvm: float
    workers: float

    @property
    def total(self) -> float:
        return self.jvm + self.workers

    def since(self, before: "Used") -> "Used":
        return Used(self.jvm - before.jvm, self.workers - before.workers)


def _fields(pid: int) -> list[int]:
    """Its own time in user and kernel mode, and that of its ended children."""
    try:
        return list(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    except OSError:
        return [0, 0, 0, 0]


def cpu_seconds(pid: int) -> float:
    """Of a process and all below it, the ended ones too."""
    return sum(_fields(pid)) / TICK + sum(map(cpu_seconds, children(pid)))


def used(jvm: int) -> Used:
    own = sum(_fields(jvm)[:2]) / TICK
    return Used(own, cpu_seconds(jvm) - own)


def jvm_of(parent: int) -> int:
    for each in children(parent):
        if "java" in Path(f"/proc/{each}/cmdline").read_text():
            return each
    raise AssertionError("no JVM")


def others_seconds() -> float:
    """Of everybody on this machine but this process and those it started."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, interrupts, soft_interrupts = ticks[:7]
    return (user + nice + system + interrupts + soft_interrupts) / TICK - cpu_seconds(os.getpid())
