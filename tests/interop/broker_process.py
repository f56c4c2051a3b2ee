"""A broker as its users run it: `millpond up` in a process of its own, stopped by a signal, started again on its port.

What it says is read by a thread, so that it never waits for a reader. A bug it reports of itself fails the test.
"""

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

START_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 20.0


class BrokerProcess:
    host = "127.0.0.1"

    def __init__(self, directory: Path, configs: Mapping[str, str]) -> None:
        """Use `running_broker`."""
        self._directory = directory
        self._sets = [f"--set={name}={value}" for name, value in configs.items()]
        self.port = 0
        """Zero until the first start; the same ever after."""
        self.told: list[dict[str, Any]] = []
        """Every line of every start, in order."""
        self.start()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        kafka = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "millpond.cli", "up", "--data-dir", str(self._directory), "--kafka", kafka]
        self._process = subprocess.Popen(
            [*command, "--http", "off", "--log-format", "json", *self._sets],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        listening: queue.Queue[int] = queue.Queue()
        self._reader = threading.Thread(target=self._listen, args=(self._process, listening), name="broker-lines")
        self._reader.start()
        port = listening.get(timeout=START_SECONDS_MAX)
        if not port:
            self.kill()
        assert port, self.told
        self.port = port

    def _listen(self, process: subprocess.Popen[str], listening: "queue.Queue[int]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            told: dict[str, Any] = json.loads(line) if line.startswith("{") else {"level": "error", "message": line}
            self.told.append(told)
            if told.get("event") == "broker_started":
                listening.put(told["port"])
        listening.put(0)

    def stop(self) -> None:
        """In order."""
        self._end(signal.SIGTERM)
        assert self._process.returncode == 0, self.told

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(STOP_SECONDS_MAX)
            assert self._process.stdout is not None
            self._process.stdout.close()

    @property
    def bugs(self) -> list[dict[str, Any]]:
        return [told for told in self.told if told["level"] in ("error", "critical")]


@contextmanager
def running_broker(directory: Path, configs: Mapping[str, str] = MappingProxyType({})) -> Iterator[BrokerProcess]:
    """`configs` are Kafka's broker settings by name."""
    broker = BrokerProcess(directory, configs)
    try:
        yield broker
    except BaseException:
        broker.kill()
        raise
    broker.stop()
    assert broker.bugs == []
