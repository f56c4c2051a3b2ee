"""A broker as a user starts it: a process of its own, known by its log lines and its port.

Invariant: no process outlives the test that started it. Waits for lines, never for time.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SECONDS_MAX = 30
"""Only a broker that hangs is waited for so long."""

Line = dict[str, Any]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "millpond.cli", *arguments]


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    own = {name: text for name, text in os.environ.items() if not name.startswith("MILLPOND_")}
    # Tests run side by side, and the HTTP door has one default port for all.
    return {**own, "COLUMNS": "100", "NO_COLOR": "1", "MILLPOND_HTTP": "off", **(extra or {})}


def run(*arguments: str, cwd: Path | None = None, environ: dict[str, str] | None = None) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a command that ends by itself."""
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        cwd=cwd,
        env=environment(environ),
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


class BrokerProcess:
    def __init__(
        self, data_dir: Path, *arguments: str, kafka: str = "127.0.0.1:0", environ: dict[str, str] | None = None
    ) -> None:
        """Returns when it listens."""
        given: Sequence[str] = ("up", "--data-dir", str(data_dir), "--kafka", kafka, "--log-format", "json")
        self._process = subprocess.Popen(
            command(*given, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(environ),
        )
        try:
            self.started = self._next_line()
        except BaseException:
            self.kill()
            raise

    @property
    def bootstrap(self) -> str:
        return str(self.started["address"])

    @property
    def pid(self) -> int:
        return self._process.pid

    def _next_line(self) -> Line:
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        assert text, f"it ended: {self._process.communicate(timeout=SECONDS_MAX)[1]}"
        line: Line = json.loads(text)
        return line

    def lines_until(self, event: str) -> list[Line]:
        """The next lines, the last of them that event."""
        lines = [self._next_line()]
        while lines[-1]["event"] != event:
            lines.append(self._next_line())
        return lines

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> tuple[int, list[Line], str]:
        """The exit code, the lines that were not read yet, and stderr."""
        out, err = self._process.communicate(timeout=SECONDS_MAX)
        return self._process.returncode, [json.loads(line) for line in out.splitlines()], err

    def stop(self) -> list[Line]:
        """In order; returns its last lines."""
        self.send(signal.SIGTERM)
        code, lines, err = self.wait()
        assert (code, err) == (0, "")
        return lines

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate(timeout=SECONDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
