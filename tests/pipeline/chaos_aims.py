"""When `make pipeline-chaos` strikes: the places of a micro-batch, told from what it leaves on disk.

    planned ─ dead letters ─ facts written ─ facts committed ─ roll-ups written ─ roll-ups committed ─ published ─ done

Each place is seen from outside: a file that is new, a log that has grown. Who strikes at it watches for that, and
where the strike landed is read from the folder afterwards: it need not be where it was aimed.

Pure but for looking at files. Driven by chaos.py.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

VICTIMS = {"driver": 5, "jvm": 3, "worker": 3, "all of it": 4, "broker": 4, "broker twice": 2, "broker and driver": 2}
"""And how often each, compared with the others."""
LATER_SECONDS_MAX = 0.25
ANYWHERE_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True)
class Strike:
    victim: str
    aim: str
    seconds: float
    """After what is waited for."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Of a job, and of its broker."""

    job: Path
    broker: Path

    def table(self, name: str) -> Path:
        return self.job / name

    def commits(self, name: str) -> int:
        return _count(self.table(name) / "_delta_log", ".json")

    def written(self, name: str) -> int:
        return sum(_count(each, ".parquet") for each in self.table(name).glob("*=*"))

    def numbers(self, what: str) -> list[int]:
        """Of Spark's own log of offsets, or of commits."""
        folder = self.job / "checkpoint" / what
        return sorted(int(each.name) for each in folder.glob("[0-9]*")) if folder.is_dir() else []

    def grown(self, topic: str) -> int:
        return sum(each.stat().st_size for each in self.broker.glob(f"{topic}-*/*.log"))


def _count(folder: Path, suffix: str) -> int:
    return sum(each.suffix == suffix and each.name[0] != "." for each in folder.iterdir()) if folder.is_dir() else 0


AIMS: dict[str, Callable[[Folders], object]] = {
    "planned": lambda at: len(at.numbers("offsets")),
    "dead letters": lambda at: at.grown("metrics.inbound.dlq"),
    "facts written": lambda at: at.written("facts"),
    "facts committed": lambda at: at.commits("facts"),
    "roll-ups written": lambda at: at.written("rollups"),
    "roll-ups committed": lambda at: at.commits("rollups"),
    "published": lambda at: at.grown("metrics.rollup"),
    "done": lambda at: len(at.numbers("commits")),
}
"""By name, what changes when a micro-batch is there."""
STARTING = "starting"
ANYWHERE = "anywhere"


def schedule(rng: random.Random, kills: int) -> list[Strike]:
    """Every place in turn, in an order of chance; at once, or a moment later."""
    names = [*AIMS, STARTING, ANYWHERE]
    found: list[Strike] = []
    while len(found) < kills:
        for aim in rng.sample(names, len(names)):
            (victim,) = rng.choices([*VICTIMS], [*VICTIMS.values()])
            soon = rng.choice((0.0, rng.uniform(0, LATER_SECONDS_MAX)))
            found.append(Strike(victim, aim, soon if aim in AIMS else rng.uniform(0, ANYWHERE_SECONDS_MAX)))
    return found[:kills]


def landed(at: Folders) -> str:
    """How far the micro-batch is that a run left, as the next one finds it."""
    planned, told = at.numbers("offsets"), at.numbers("commits")
    if not planned or planned[-1:] == told[-1:]:
        return "between micro-batches"
    number = planned[-1]
    if _last_number(at.table("facts")) < number:
        return f"in {number}, before its facts"
    if _last_number(at.table("rollups")) < number:
        return f"in {number}, behind its facts"
    return f"in {number}, behind its roll-ups"


def _last_number(table: Path) -> int:
    """Of the last commit of the query."""
    for path in sorted((table / "_delta_log").glob("*.json"), reverse=True):
        for action in map(json.loads, path.read_text().splitlines()):
            if "txn" in action and "/" not in action["txn"]["appId"]:
                return int(action["txn"]["version"])
    return -1


def ingested(at: Folders) -> int:
    """As the last commit of facts has it."""
    for path in sorted((at.table("facts") / "_delta_log").glob("*.json"), reverse=True):
        note = json.loads(path.read_text().splitlines()[0])["commitInfo"]["note"]
        if note:
            return int(note["ingested"])
    return 0


def loose(at: Folders) -> int:
    """Files that were written and never committed: what kills cost, and no table has."""
    named = {
        (name, action["add"]["path"])
        for name in ("facts", "rollups")
        for path in (at.table(name) / "_delta_log").glob("*.json")
        for action in map(json.loads, path.read_text().splitlines())
        if "add" in action
    }
    return at.written("facts") + at.written("rollups") - len(named)
