"""What makes a write of Spark happen once: a commit's name and number, kept in the log with the rows they brought.

A commit is one micro-batch of a query (or one numbered write of a program), and every task of it has a producer id and
an epoch that are computed, not handed out:

    producer id      2**62 + 62 bits of SHA-256(name, task, number // 32768)
    producer epoch   number % 32768
    sequence         from 0 in each partition, in each epoch

So whoever does the same work again, in another try, after another start, on another machine, sends the same numbers,
and a partition's leader knows them again as it knows every idempotent producer: what it has is acknowledged and not
kept twice, what is missing is taken, and whoever is late with an earlier number is refused. The numbers are in the log,
so they are on every replica and survive whatever the rows survive. docs/decisions/0019-exactly-once-from-spark.md has
the reasons, and what a query must be for this to hold.

Pure. Driven by committing.py, which sends what a task has.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from millpond.model.ids import ProducerEpoch, ProducerId

EPOCHS: Final = 1 << 15
_COMPUTED: Final = 1 << 62
"""Brokers hand out small ids."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One numbered write. Numbers of one name go up."""

    name: str
    number: int

    def producer(self, task: int) -> tuple[ProducerId, ProducerEpoch]:
        said = f"{self.name}\0{task}\0{self.number // EPOCHS}".encode()
        place = int.from_bytes(sha256(said).digest()[:8], "big") >> 2
        return ProducerId(_COMPUTED + place), ProducerEpoch(self.number % EPOCHS)
