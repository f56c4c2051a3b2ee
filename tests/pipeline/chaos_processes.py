"""The processes that `make pipeline-chaos` kills: a broker, and the pipeline's driver with all that it starts.

Invariant: none outlives `close`. What they say goes to files, so that nobody waits for a reader.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.cli.broker_process import command, environment
from tests.interop.free_ports import free_ports

START_SECONDS_MAX = 120.0
DEATH_SECONDS_MAX = 90.0
LOOK_SECONDS = 0.002


def wait_until(holds: Callable[[], object], seconds_max: float) -> bool:
    """Whether it came to hold in time."""
    until = time.monotonic() + seconds_max
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def children(pid: int) -> list[int]:
    """Whichever of its threads they are of."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, path.read_text().split())
    return found


class Broker:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder.with_suffix(".log")
        self.bootstrap = f"127.0.0.1:{free_ports(1)[0]}"
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Returns at once."""
        given = ("--data-dir", str(self._folder), "--kafka", self.bootstrap, "--log-format", "json")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command("up", *given), stdout=log, stderr=log, env=environment())

    def start(self) -> None:
        self.launch()
        if not wait_until(lambda: self.is_dead or b"broker_started" in self._log.read_bytes(), START_SECONDS_MAX):
            raise AssertionError("the broker does not start")
        assert not self.is_dead, f"the broker ended: {self._log.read_text()[-2000:]}"

    @property
    def is_dead(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


QUICK_TO_START = {
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions",
}
"""For a driver that will not live long: what is compiled well is compiled for those who do."""


class Driver:
    """A Spark program: a Python process, its JVM, that one's Python daemon, and its workers."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = command
        self.log = log
        self._conf = log.with_suffix(".conf")
        self._conf.mkdir()
        (self._conf / "spark-defaults.conf").write_text("spark.sql.codegen.wholeStage false\n")
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self, *more: str, is_short: bool = False) -> None:
        self.starts += 1
        quick = QUICK_TO_START | {"SPARK_CONF_DIR": str(self._conf)} if is_short else {}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *more], stdout=log, stderr=log, env=environment(quick), start_new_session=True
            )

    @property
    def is_dead(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def wait(self, seconds_max: float) -> int | None:
        """Its exit code; None if it goes on."""
        if self._process is None or not wait_until(lambda: self.is_dead, seconds_max):
            return None
        return self._process.returncode

    def kill(self, victim: str, rng: random.Random) -> bool:
        """One of its processes, or all of them. False where there is none of that kind."""
        assert self._process is not None
        jvms = children(self._process.pid)
        daemons = [each for jvm in jvms for each in children(jvm)]
        workers = [each for daemon in daemons for each in children(daemon)]
        found = {"driver": [self._process.pid], "jvm": jvms, "worker": workers, "all of it": [-self._process.pid]}[
            victim
        ]
        if not found:
            return False
        pid = rng.choice(found)
        with suppress(ProcessLookupError):
            if pid < 0:
                os.killpg(-pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)
        return True

    def end(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
