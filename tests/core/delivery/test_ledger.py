"""A ledger stays as small as what is unfinished, and needs no second look at what is done."""

import random

from msgspec.structs import replace

from millpond.core.delivery.encoding import decode, encode_whole
from millpond.core.delivery.ledger import DEADLINES_MIN, Ledger, Verdict
from millpond.core.delivery.settings import DeliverySettings, Priority
from millpond.core.delivery.states import Outcome
from millpond.model.instant import Instant

NOW = Instant(0, 1_700_000_000_000)
LONG_MS = 12 * 3_600_000


def take(ledger: Ledger, count: int = 1, *, holder: str = "anna") -> list[int]:
    offer = ledger.offer(NOW)
    if offer is None:
        return []
    some = replace(offer, last=min(offer.last, offer.first + count - 1))
    runs = ledger.acquire(some, holder=holder, lock_ms=LONG_MS, now=NOW)
    return [offset for run in runs for offset in range(run.first, run.last + 1)]


def accept(ledger: Ledger, first: int, last: int) -> None:
    ledger.acknowledge([Verdict(first, last, Outcome.ACCEPT)], holder="anna", now=NOW)


def test_leases_that_were_settled_long_before_their_time_leave_nothing_behind() -> None:
    ledger = Ledger(DeliverySettings(), random.Random(0), start=0)
    ledger.admit_until(10**6)
    slow = take(ledger, holder="bert")
    for offset in range(1, 5 * DEADLINES_MIN):
        assert take(ledger) == [offset]
        accept(ledger, offset, offset)
        ledger.take_changes()
    assert len(ledger._deadlines) <= DEADLINES_MIN + 2
    ledger.tick(Instant(LONG_MS, NOW.wall_ms + LONG_MS))
    assert take(ledger) == slow, "its deadline was not forgotten"


def test_ten_million_done_messages_behind_a_slow_one_are_not_looked_at_again_after_a_restart() -> None:
    settings = DeliverySettings(priority=Priority.STRICT, leased_max=10**8, held_max=10**8)
    ledger = Ledger(settings, random.Random(0), start=0)
    ledger.admit_plain(0, 10**7, written_wall_ms=NOW.wall_ms)
    assert take(ledger, holder="bert") == [0]
    offer = ledger.offer(NOW)
    assert offer is not None
    assert (offer.first, offer.last) == (1, 10**7)
    ledger.acquire(offer, holder="anna", lock_ms=LONG_MS, now=NOW)
    accept(ledger, 1, 10**7)
    assert len(list(ledger.open_runs())) == 1
    again = Ledger.restore(settings, random.Random(0), decode([encode_whole(ledger)]), now=NOW)
    again.pass_done()
    assert again.frontier == 0, "it is held, and has to be looked at"
    again.admit_plain(0, 0, written_wall_ms=NOW.wall_ms)
    again.pass_done()
    assert again.frontier == 10**7 + 1
    assert take(again) == []
