"""A server in a process of its own: what it uses of the machine, and its end.

Invariant: nothing that was started is left when `stop` returns. A server leads a session of its own, so that all it
starts ends with it, and nothing else does.
"""

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 15.0
_POLL_SECONDS = 0.005
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_OUTPUT_SHOWN = 2_000

Result = TypeVar("Result")


class NotReady(Exception):
    """The server answers, and says that it cannot do that yet."""


class ServerProcess:
    def __init__(self, command: Sequence[str], directory: Path, environ: Mapping[str, str] | None = None) -> None:
        self._output = directory / "output"
        self.began = time.perf_counter()
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={**os.environ, **(environ or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, attempt: Callable[[], Result]) -> Result:
        """Tries until it succeeds."""
        deadline = time.perf_counter() + START_SECONDS_MAX
        while True:
            try:
                return attempt()
            except (OSError, NotReady, EOFError) as error:
                if self._process.poll() is not None or time.perf_counter() > deadline:
                    raise RuntimeError(f"{self._process.args!r} did not start ({error}): {self._said()}") from error
                time.sleep(_POLL_SECONDS)

    def cpu_seconds(self) -> float:
        """Of all its processes, in the kernel as well."""
        ticks = 0
        for pid in self._pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / _TICKS_PER_SECOND

    def resident_bytes(self) -> int:
        return self._memory_bytes("VmRSS:")

    def anonymous_bytes(self) -> int:
        """Without what it has mapped of files: that is the page cache's, and goes when others need it."""
        return self._memory_bytes("RssAnon:")

    def _memory_bytes(self, kind: str) -> int:
        total = 0
        for pid in self._pids():
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith(kind):
                    total += int(line.split()[1]) * 1024
        return total

    def stop(self) -> None:
        for how in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None and how is signal.SIGTERM:
                continue
            try:
                os.killpg(self._process.pid, how)
                self._process.wait(STOP_SECONDS_MAX)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue

    def _pids(self) -> list[int]:
        found = [self._process.pid]
        for pid in found:
            children = Path(f"/proc/{pid}/task/{pid}/children")
            if children.exists():
                found += map(int, children.read_text().split())
        return found

    def _said(self) -> str:
        return self._output.read_text(errors="replace")[-_OUTPUT_SHOWN:]


class OthersLoad:
    """How much of the machine went to neither this process nor any that it started and has ended since."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._theirs_s = self._others_seconds()

    def cores(self) -> float:
        spent = self._others_seconds() - self._theirs_s
        return max(0.0, spent / (time.perf_counter() - self._began))

    @staticmethod
    def _others_seconds() -> float:
        ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        user, nice, system, _, _, interrupts, soft_interrupts = ticks[:7]
        busy = (user + nice + system + interrupts + soft_interrupts) / _TICKS_PER_SECOND
        return busy - own_cpu_seconds()


def own_cpu_seconds() -> float:
    """Of this process with all its threads, and of those it started, once they have ended."""
    usages = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
