"""The life of leases, written down as text: what is asked of a ledger, what it hands out, and what is to be kept.

    > at 0 ana asks for 2
      ana <- 0-1 for the 1st time
      keep 0-1 leased to ana for 1000 ms, attempts 1

A restart begins with the documents that were kept, and nothing else.
"""

import os
import random
from pathlib import Path

from msgspec.structs import replace

from millpond.core.delivery.encoding import decode, encode, encode_whole
from millpond.core.delivery.ledger import Ledger, Verdict
from millpond.core.delivery.settings import DeliverySettings
from millpond.core.delivery.states import Doomed, Lane, Leased, Outcome, Ready, State, Waiting
from millpond.model.errors import LeaseLost
from millpond.model.instant import Instant

TRANSCRIPTS = Path(__file__).parent / "transcripts"
WALL_MS = 1_700_000_000_000
LOCK_MS = 1000
ORDINALS = {1: "1st", 2: "2nd", 3: "3rd"}


class Conversation:
    def __init__(self, settings: DeliverySettings) -> None:
        self.settings = settings
        self.now_ms = 0
        self.booted_ms = 0
        self.ledger = Ledger(settings, random.Random(0), start=0)
        self.documents = [encode_whole(self.ledger)]
        self.messages: list[tuple[Lane, bytes | None]] = []
        self.lines: list[str] = []

    @property
    def now(self) -> Instant:
        """A process begins to count at 0."""
        return Instant(self.now_ms - self.booted_ms, WALL_MS + self.now_ms)

    def say(self, line: str) -> None:
        self.lines.append(f"> at {self.now_ms} {line}")

    # What happens

    def come(self, count: int, *, lane: Lane = Lane.NORMAL, key: bytes | None = None) -> None:
        what = "" if key is None else f" of key {key.decode()}"
        what += "" if lane is Lane.NORMAL else f", {lane.name.lower()}"
        self.say(f"{count} come{what}")
        self.messages += [(lane, key)] * count
        self._let_in()
        self._settle()

    def _let_in(self) -> None:
        if not self.settings.looks_at_messages:
            self.ledger.admit_until(len(self.messages))
        while (at := self.ledger.frontier) < len(self.messages):
            lane, key = self.messages[at]
            self.ledger.admit(at, lane=lane, key=key, written_wall_ms=WALL_MS)

    def ask(self, holder: str, count: int) -> None:
        self.say(f"{holder} asks for {count}")
        count = min(count, self.ledger.room_for(holder))
        came = 0
        self.ledger.tick(self.now)
        while came < count and (offer := self.ledger.offer(self.now)) is not None:
            offer = replace(offer, last=min(offer.last, offer.first + count - came - 1))
            for each in self.ledger.acquire(offer, holder=holder, lock_ms=LOCK_MS, now=self.now):
                came += each.last - each.first + 1
                self.lines.append(f"  {holder} <- {span(each.first, each.last)} for the {ORDINALS[each.attempt]} time")
        if not came:
            self.lines.append(f"  {holder} <- nothing")
        self._settle()

    def tell(self, holder: str, outcome: Outcome, first: int, last: int | None = None, **more: int | str) -> None:
        last = first if last is None else last
        told = "".join(f", {name} {value}" for name, value in more.items())
        self.say(f"{holder} says {outcome.name.lower()} of {span(first, last)}{told}")
        try:
            self.ledger.acknowledge([Verdict(first, last, outcome)], holder=holder, now=self.now, **more)  # type: ignore[arg-type]
        except LeaseLost:
            self.lines.append(f"  {holder} <- the lease is lost")
        self._settle()

    def leave(self, holder: str) -> None:
        self.say(f"{holder} hangs up")
        self.ledger.release_all(holder, self.now)
        self._settle()

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.say(f"after {ms} ms")
        self.ledger.tick(self.now)
        self._settle()

    def bury(self) -> None:
        self.say("the dead-letter topic is there")
        for first, last, state in self.ledger.doomed:
            number = first + state.sequence_shift
            self.lines.append(f"  dead {span(first, last)}, number {number}, after {state.attempts}: {state.reason}")
            self.ledger.buried(first, last)
        self._settle()

    def trim(self, log_start: int) -> None:
        self.say(f"the log is deleted before {log_start}")
        self.ledger.trim(log_start)
        self._settle()

    def restart(self) -> None:
        """Another broker, or this one again: its monotonic clock begins anew."""
        self.booted_ms = self.now_ms
        self.say("another leads")
        self.ledger = Ledger.restore(self.settings, random.Random(0), decode(self.documents), now=self.now)
        for first, last, state in self.ledger.open_runs():
            self.lines.append(f"  finds {span(first, last)} {written(state)}")
        self.lines.append(f"  finds nothing else before {self.ledger.end}")
        self.documents = [encode_whole(self.ledger)]
        self._let_in()
        self._settle()

    def _settle(self) -> None:
        changes = self.ledger.take_changes()
        for each in changes:
            self.lines.append(f"  keep {span(each.first, each.last)} {written(each.state)}")
        if changes:
            self.documents.append(encode(self.ledger, changes))
        due = self.ledger.next_deadline
        if due is not None and due <= self.now.monotonic_ms:
            self.lines.append("  something is due")


def span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def written(state: State | None) -> str:
    match state:
        case None:
            return "done"
        case Ready():
            return f"ready, attempts {state.attempts}"
        case Leased():
            return f"leased to {state.holder} for {state.lock_ms} ms, attempts {state.attempts}"
        case Waiting():
            return f"waiting until {state.due_wall_ms - WALL_MS}, attempts {state.attempts}"
        case Doomed():
            return f"doomed, attempts {state.attempts}: {state.reason}"


def golden(talk: Conversation, name: str) -> None:
    """Compares with transcripts/<name>.txt; with REWRITE_TRANSCRIPTS set, writes it anew, to be read in the diff."""
    actual = "\n".join(talk.lines)
    path = TRANSCRIPTS / f"{name}.txt"
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(actual + "\n")
    assert actual + "\n" == path.read_text(), f"{name} went otherwise:\n\n{actual}\n"
