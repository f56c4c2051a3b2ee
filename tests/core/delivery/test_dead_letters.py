"""Numbers of dead letters: none is missing, and they are sent in their order, whatever becomes of the messages."""

import random

from millpond.core.delivery.encoding import decode, encode_whole
from millpond.core.delivery.ledger import SEQUENCES, Ledger, Verdict
from millpond.core.delivery.settings import DeliverySettings
from millpond.core.delivery.states import Outcome
from millpond.model.instant import Instant

NOW = Instant(0, 1_700_000_000_000)


def ledger_of(count: int) -> Ledger:
    ledger = Ledger(DeliverySettings(), random.Random(0), start=0)
    ledger.admit_until(count)
    offer = ledger.offer(NOW)
    assert offer is not None
    ledger.acquire(offer, holder="anna", lock_ms=1000, now=NOW)
    return ledger


def reject(ledger: Ledger, first: int, last: int) -> None:
    ledger.acknowledge([Verdict(first, last, Outcome.REJECT)], holder="anna", now=NOW)


def numbers(ledger: Ledger) -> list[tuple[int, int]]:
    """Offset and number, in the order in which they are sent."""
    return [
        (offset, (offset + run.value.sequence_shift) % SEQUENCES)
        for run in ledger.doomed
        for offset in range(run.first, run.last + 1)
    ]


def test_letters_are_sent_in_the_order_of_their_numbers() -> None:
    ledger = ledger_of(10)
    reject(ledger, 7, 8)
    reject(ledger, 2, 2)
    reject(ledger, 5, 5)
    assert numbers(ledger) == [(7, 0), (8, 1), (2, 2), (5, 3)]


def test_also_after_a_restart_and_when_numbers_begin_anew() -> None:
    ledger = ledger_of(10)
    ledger.next_sequence = SEQUENCES - 2
    reject(ledger, 6, 8)
    reject(ledger, 2, 2)
    kept = decode([encode_whole(ledger)])
    restored = Ledger.restore(DeliverySettings(), random.Random(0), kept, now=NOW)
    expected = [(6, SEQUENCES - 2), (7, SEQUENCES - 1), (8, 0), (2, 1)]
    assert numbers(ledger) == numbers(restored) == expected


def test_the_log_loses_messages_and_no_number_is_missing() -> None:
    ledger = ledger_of(10)
    reject(ledger, 7, 7)
    reject(ledger, 3, 4)
    ledger.trim(9)
    assert numbers(ledger) == [(7, 0), (3, 1), (4, 2)]
    assert [(run.first, run.last) for run in ledger.open_runs()] == [(3, 4), (7, 7), (9, 9)]
    ledger.take_changes()
    ledger.trim(9)
    assert ledger.take_changes() == []
    for run in ledger.doomed:
        ledger.buried(run.first, run.last)
    assert ledger.start == 9
