"""`make pipeline-chaos`: the metrics pipeline under kill -9, and what it comes to compared with the truth.

Metrics come in all the while. Drivers, their JVMs, their Python workers and the broker are killed at random points; who
is dead is started again. At the end tables and topics are what plain Python makes of the messages, to the row.

Ends by itself: after so many kills, or when its time is over, which is a failure.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from millpond.cli.pipeline_generate import GeneratePlan, generate_metrics
from millpond.cli.pipeline_run import quiet_session
from millpond.pipeline.metrics_job import MetricsSettings
from tests.cli.broker_process import BrokerProcess
from tests.pipeline.metrics_model import compare

TOPIC = "metrics.inbound"
VICTIMS = ("driver", "driver", "jvm", "worker", "broker")
LONG_SECONDS = 120.0
BATCHES_PER_KILL = 4


class Chaos:
    def __init__(self, folder: Path, rng: random.Random, *, seconds_max: float, offsets_max: int) -> None:
        self._folder = folder
        self._rng = rng
        self._offsets_max = offsets_max
        self._until = time.monotonic() + seconds_max
        self._broker = BrokerProcess(folder / "broker", "--http", "off")
        self.bootstrap = self._broker.bootstrap
        self._driver: subprocess.Popen[bytes] | None = None
        self.killed: dict[str, int] = dict.fromkeys(VICTIMS, 0)
        self.starts = 0

    def close(self) -> None:
        self._end_driver()
        self._broker.kill()

    # Those who live and die

    def start_driver(self, *more: str) -> "subprocess.Popen[bytes]":
        self.starts += 1
        given = ("--bootstrap", self.bootstrap, "--folder", str(self._folder / "metrics"), "--master", "local[2]")
        with (self._folder / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "millpond.cli", "pipeline", "run", "metrics", *given, *more],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self._driver

    def _end_driver(self) -> None:
        if self._driver is not None and self._driver.poll() is None:
            os.killpg(self._driver.pid, signal.SIGKILL)
            self._driver.wait()

    def kill_one(self) -> None:
        if self._driver is None or self._driver.poll() is not None:
            self.start_driver("--every", "0", "--max-offsets", str(self._offsets_max))
        if self._rng.random() < 0.7:
            commits = self._commits()
            self._wait(lambda: self._commits() > commits or self._is_dead())
        else:
            time.sleep(self._rng.uniform(0, 20))
        time.sleep(self._rng.uniform(0, 3))
        victim = self._rng.choice(VICTIMS)
        if self._is_dead() or not self._kill(victim):
            return  # what was killed before has ended it
        self.killed[victim] += 1
        say(f"{sum(self.killed.values())}: killed {victim} after {self._commits()} commits")

    def _kill(self, victim: str) -> bool:
        assert self._driver is not None
        if victim == "broker":
            self._broker.kill()
            time.sleep(self._rng.uniform(0, 3))
            self._broker = BrokerProcess(self._folder / "broker", "--http", "off", kafka=self.bootstrap)
            return True
        jvms = children(self._driver.pid)
        daemons = [each for jvm in jvms for each in children(jvm)]
        found = {
            "driver": [self._driver.pid],
            "jvm": jvms,
            "worker": [each for daemon in daemons for each in children(daemon)],
        }[victim]
        if not found:
            return False
        os.kill(self._rng.choice(found), signal.SIGKILL)
        if victim == "driver":
            self._driver.wait()
        return True

    def _is_dead(self) -> bool:
        return self._driver is not None and self._driver.poll() is not None

    def _commits(self) -> int:
        log = self._folder / "metrics" / "facts" / "_delta_log"
        return len(list(log.glob("*.json"))) if log.is_dir() else 0

    def _wait(self, holds: Callable[[], bool]) -> None:
        """Or long enough: where all is done there is nothing to wait for, and killing goes on."""
        until = time.monotonic() + LONG_SECONDS
        while not holds() and time.monotonic() < until:
            assert time.monotonic() < self._until, "its time is over"
            time.sleep(0.05)

    def finish(self) -> None:
        """Nobody is killed any more: the last run comes to the end."""
        self._end_driver()
        for _ in range(3):
            driver = self.start_driver("--once", "--close-windows")
            code = driver.wait(timeout=max(1.0, self._until - time.monotonic()))
            if code == 0:
                return
        raise AssertionError((self._folder / "driver.log").read_text()[-3000:])


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def children(pid: int) -> list[int]:
    """Whichever of its threads they are of."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    say(f"seed {given.seed}")
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="millpond-pipeline-chaos-") as made:
        offsets_max = max(1, given.messages // given.kills // BATCHES_PER_KILL)
        chaos = Chaos(Path(made), rng, seconds_max=given.minutes * 60, offsets_max=offsets_max)
        try:
            run(chaos, Path(made), given.messages, given.kills, given.seed)
        finally:
            chaos.close()


def run(chaos: Chaos, folder: Path, messages: int, kills: int, seed: int) -> None:
    def load(count: int, rate: int | None, number: int) -> GeneratePlan:
        return GeneratePlan(
            messages=count, rate=rate, clients=50, faults=(0.05, 0.02, 0.01), seed=seed + number, topic=TOPIC
        )

    failures: list[BaseException] = []

    def go_on_sending() -> None:
        try:
            generate_metrics(chaos.bootstrap, load(messages - first, max(1, (messages - first) // (10 * kills)), 1))
        except BaseException as error:
            failures.append(error)

    first = messages // 2
    generate_metrics(chaos.bootstrap, load(first, None, 0))
    sending = threading.Thread(target=go_on_sending, daemon=True)
    sending.start()
    while sum(chaos.killed.values()) < kills:
        chaos.kill_one()
    sending.join()
    assert not failures, failures
    chaos.finish()
    settings = MetricsSettings(bootstrap=chaos.bootstrap, folder=folder / "metrics")
    with quiet_session("local[2]", folder) as spark:
        truth = compare(spark, settings)
    late = sum(truth.facts.values())
    say(
        f"{truth.ingested} messages, {len(truth.dead)} dead letters, {len(truth.facts)} facts, {late} late, "
        f"{len(truth.rollups())} roll-ups: all as they should be, after {chaos.killed} kills and {chaos.starts} starts"
    )


if __name__ == "__main__":
    main()
