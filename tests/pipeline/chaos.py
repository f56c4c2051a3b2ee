"""`make pipeline-chaos`: the metrics pipeline under kill -9, and what it comes to compared with the truth.

Metrics come in all the while. Drivers, their JVMs, their Python workers and the broker are killed: at the worst places
of a micro-batch (chaos_aims.py), while they start, and anywhere. Who is dead is started again. At the end tables and
topics are what plain Python makes of the messages, to the row and to the sum.

A seed gives the same messages and the same plan of kills; when exactly each lands is up to the machine.
Ends by itself: 0 where all is right, 1 where something is wrong, or the time is over.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from millpond.client import Admin, Producer
from millpond.pipeline.generating import Load, arrivals
from millpond.pipeline.metrics_job import MetricsSettings
from tests.cli.broker_process import command
from tests.pipeline.chaos_aims import AIMS, STARTING, Folders, Strike, ingested, landed, loose, schedule
from tests.pipeline.chaos_processes import DEATH_SECONDS_MAX, Broker, Driver, wait_until
from tests.pipeline.metrics_model import Truth, compare

TOPIC = "metrics.inbound"
PARTITIONS = 4
START_MS = 1_700_002_200_000
"""Ten minutes before an hour is over, so that windows of every width close on the way."""
PER_SECOND = 500
PATIENCE_SECONDS = 300.0
"""For what a strike waits for; then it strikes anyway, so that it ends."""
FIRST_SHARE = 0.4
"""Of the messages, before the first kill; the others come kill by kill."""
BATCHES_PER_KILL = 2
TRIES = 3
BROKERS = ("broker", "broker twice")
WORKER_SECONDS_MAX = 10.0


@dataclass(slots=True)
class Landed:
    strike: Strike
    where: str
    was_seen: bool
    """What it waited for came to pass."""


class Over(Exception):
    """Nobody wants more messages."""


class Sending(threading.Thread):
    """All messages of a load, in their order, as far as they are allowed."""

    def __init__(self, bootstrap: str, load: Load) -> None:
        super().__init__(daemon=True)
        self._address = bootstrap
        self._load = load
        self._allowed = threading.Condition()
        self._until = 0
        self._is_over = False
        self.sent = 0
        self.failure: BaseException | None = None

    def allow(self, share: float) -> None:
        with self._allowed:
            self._until = max(self._until, round(self._load.messages * share))
            self._allowed.notify()

    def run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as error:
            self.failure = error

    async def _send(self) -> None:
        async with Admin(self._address) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS, configs={"retention.ms": "-1"})
        async with Producer(self._address, compression="lz4") as producer:
            for at_ms, keys, values in arrivals(self._load):
                await asyncio.to_thread(self._wait)
                await producer.send_many(TOPIC, values, keys=keys, timestamp=at_ms)
                self.sent += len(values)

    def _wait(self) -> None:
        with self._allowed:
            self._allowed.wait_for(lambda: self.sent < self._until or self._is_over)
            if self._is_over:
                raise Over

    def end(self) -> None:
        """Or who waits would be waited for."""
        with self._allowed:
            self._is_over = True
            self._allowed.notify()

    def wait_sent(self, share: float, seconds_max: float) -> None:
        wanted = round(self._load.messages * share)
        wait_until(lambda: self.sent >= wanted or self.failure is not None, seconds_max)
        if self.failure is not None:
            raise self.failure
        assert self.sent >= wanted, f"only {self.sent} messages were sent in time"


@dataclass(slots=True)
class Chaos:
    at: Folders
    broker: Broker
    driver: Driver
    sending: Sending
    rng: random.Random
    offsets_max: int
    started: float
    seconds_max: float
    landed: list[Landed] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def left(self) -> float:
        left = self.seconds_max - self.seconds
        assert left > 0, f"its {self.seconds_max:.0f} seconds are over"
        return left

    def say(self, text: str) -> None:
        sys.stdout.write(f"{self.seconds:5.0f} s  {text}\n")
        sys.stdout.flush()

    def strike(self, number: int, strike: Strike) -> None:
        """Waits for its moment, kills, and waits until whoever does not survive that is dead."""
        seen = self._wait_for(strike)
        time.sleep(strike.seconds)
        where = self._kill(strike.victim)
        self.landed.append(Landed(strike, where, seen))
        self.say(
            f"kill {number}: {strike.victim}, aimed at: {strike.aim}{'' if seen else ' (which did not come)'}; "
            f"landed {where}. {ingested(self.at):,} of {self.sending.sent:,} messages are in"
        )

    def _wait_for(self, strike: Strike) -> bool:
        """Whether it came to pass."""
        if strike.aim == STARTING:
            self.driver.end()
        self._keep_driving()
        if strike.aim not in AIMS:
            return True
        look = AIMS[strike.aim]
        before = look(self.at)
        until = time.monotonic() + PATIENCE_SECONDS
        while (left := min(until - time.monotonic(), self.left)) > 0:
            wait_until(lambda: look(self.at) != before or self.driver.is_dead, left)
            if look(self.at) != before:
                return True
            self._keep_driving()
        return False

    def _keep_driving(self) -> None:
        """Whoever lost a worker, or the broker for long, may have ended by itself."""
        if self.driver.is_dead:
            self.driver.start("--every", "0", "--max-offsets", str(self.offsets_max), is_short=True)

    def _kill(self, victim: str) -> str:
        """Where it landed."""
        if victim in BROKERS:
            self.broker.kill()
            where = landed(self.at)
            self._bring_back(twice=victim == "broker twice")
            return where
        whom = "driver" if victim == "broker and driver" else victim
        if not self.driver.kill(whom, self.rng):
            self.driver.kill("all of it", self.rng)
        if victim == "broker and driver":
            self.broker.kill()
        if self.driver.wait(WORKER_SECONDS_MAX if victim == "worker" else DEATH_SECONDS_MAX) is None:
            # A worker that had nothing to do is replaced, and nobody minds.
            assert victim == "worker", f"a driver goes on without its {victim}"
        where = landed(self.at)
        if victim == "broker and driver":
            self._bring_back(twice=True)
        return where

    def _bring_back(self, *, twice: bool) -> None:
        time.sleep(self.rng.uniform(0, 2))
        if twice:
            self.broker.launch()
            time.sleep(self.rng.uniform(0.2, 1.5))
            self.broker.kill()
        self.broker.start()

    def finish(self) -> None:
        """Nobody is killed any more: the last run comes to the end."""
        self.sending.allow(1)
        self.sending.wait_sent(1, self.left)
        self.driver.end()
        self.say("all messages are sent; the last run goes to the end")
        for _ in range(TRIES):
            self.driver.start("--once", "--close-windows")
            code = self.driver.wait(self.left)
            if code == 0:
                return
            self.say(f"it ended with {code}: {self.driver.log.read_text()[-500:]}")
        raise AssertionError("the pipeline does not come to its end")

    def close(self) -> None:
        self.sending.end()
        self.driver.end()
        self.broker.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and not without ending what was started
    with tempfile.TemporaryDirectory(prefix="millpond-pipeline-chaos-") as made:
        folder = Path(made)
        broker = Broker(folder / "broker")
        where = ("--bootstrap", broker.bootstrap, "--folder", str(folder / "metrics"), "--master", "local[2]")
        driver = Driver(command("pipeline", "run", "metrics", *where), folder / "driver.log")
        load = Load(messages=given.messages, start_ms=START_MS, per_second=PER_SECOND, seed=given.seed)
        chaos = Chaos(
            Folders(folder / "metrics", folder / "broker"),
            broker,
            driver,
            Sending(broker.bootstrap, load),
            random.Random(given.seed),
            offsets_max=max(1, given.messages // given.kills // BATCHES_PER_KILL),
            started=time.monotonic(),
            seconds_max=given.minutes * 60,
        )
        chaos.say(f"seed {given.seed}: {given.messages:,} messages, {given.kills} kills")
        try:
            run(chaos, given.kills)
        except AssertionError as error:
            chaos.say(f"WRONG: {str(error)[:2000]}")
            sys.stdout.write(f"{driver.log.read_text()[-2000:]}\nagain, the same plan: --seed {given.seed}\n")
            sys.exit(1)
        finally:
            chaos.close()


def run(chaos: Chaos, kills: int) -> None:
    chaos.broker.start()
    chaos.sending.start()
    chaos.sending.allow(FIRST_SHARE)
    chaos.sending.wait_sent(FIRST_SHARE, chaos.left)
    chaos.say(f"{chaos.sending.sent:,} messages are sent; the others come kill by kill")
    for number, strike in enumerate(schedule(chaos.rng, kills), 1):
        chaos.sending.allow(FIRST_SHARE + (1 - FIRST_SHARE) * number / kills)
        chaos.strike(number, strike)
    chaos.finish()
    chaos.say("comparing tables and topics with what plain Python makes of the messages")
    truth = compare(MetricsSettings(bootstrap=chaos.broker.bootstrap, folder=chaos.at.job))
    show(chaos, truth)


def show(chaos: Chaos, truth: Truth) -> None:
    rollups = len(truth.rollups())
    rows: list[tuple[str, object, str]] = [
        ("messages", truth.ingested, "all read, each once"),
        ("dead letters", len(truth.dead), "the same as in the model, each once"),
        ("duplicates", truth.ingested - len(truth.dead) - len(truth.facts), "left out"),
        ("facts", len(truth.facts), f"to the row; {sum(truth.facts.values())} of them late"),
        ("roll-ups", rollups, "stored, to the sum"),
        ("published", rollups, "none missing, none twice"),
        ("kills", len(chaos.landed), _counted(Counter(each.strike.victim for each in chaos.landed))),
        ("landed", "", _counted(Counter(_kind(each.where) for each in chaos.landed))),
        ("driver starts", chaos.driver.starts, f"{loose(chaos.at)} files were written and not committed"),
    ]
    for name, count, text in rows:
        sys.stdout.write(f"  {name:14}{count:>11}  {text}\n")
    chaos.say("all as it should be")


def _kind(where: str) -> str:
    return where.partition(", ")[2] or where


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in found.most_common())


if __name__ == "__main__":
    main()
