"""What is kept of a ledger, with bytes that nobody wrote so: InvalidRecord, and nothing else."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from millpond.core.delivery.encoding import decode, encode, encode_whole
from millpond.core.delivery.ledger import Ledger, Verdict
from millpond.core.delivery.settings import DeliverySettings
from millpond.core.delivery.states import Outcome
from millpond.model.errors import InvalidRecord
from millpond.model.instant import Instant

NOW = Instant(0, 1_700_000_000_000)
SETTINGS = DeliverySettings(backoff_ms=300)


def documents() -> list[bytes]:
    """One with every state in it, and a change."""
    ledger = Ledger(SETTINGS, random.Random(0), start=5)
    ledger.admit_until(300)
    offer = ledger.offer(NOW)
    assert offer is not None
    ledger.acquire(replace(offer, last=200), holder="anna", lock_ms=1000, now=NOW)
    ledger.acknowledge([Verdict(7, 9, Outcome.REJECT)], holder="anna", now=NOW, reason="broken")
    ledger.acknowledge([Verdict(20, 30, Outcome.RELEASE)], holder="anna", now=NOW)
    ledger.acknowledge([Verdict(40, 41, Outcome.RELEASE)], holder="anna", now=NOW, delay_ms=0)
    ledger.producer_id = 1000
    whole = encode_whole(ledger)
    ledger.take_changes()
    ledger.acknowledge([Verdict(100, 150, Outcome.ACCEPT)], holder="anna", now=NOW)
    return [whole, encode(ledger, ledger.take_changes())]


WHOLE, CHANGE = documents()


def test_all_states_come_back() -> None:
    kept = decode([WHOLE, CHANGE])
    assert (kept.start, kept.end, kept.producer_id, kept.next_sequence) == (5, 201, 1000, 3)
    found = [(run.first, run.last, type(run.value).__name__) for run in kept.open]
    assert found == [
        (5, 6, "Leased"),
        (7, 9, "Doomed"),
        (10, 19, "Leased"),
        (20, 30, "Waiting"),
        (31, 39, "Leased"),
        (40, 41, "Ready"),
        (42, 99, "Leased"),
        (151, 200, "Leased"),
    ]


@given(st.binary(max_size=60))
def test_any_bytes_are_a_ledger_or_refused(data: bytes) -> None:
    restore_or_refuse([b"\x01" + data])
    restore_or_refuse([data])


@given(at=st.integers(0, len(WHOLE) + len(CHANGE) - 1), byte=st.integers(0, 255), cut=st.booleans())
def test_a_document_that_was_damaged_is_a_ledger_or_refused(at: int, byte: int, cut: bool) -> None:
    damaged = [bytearray(WHOLE), bytearray(CHANGE)]
    which, at = (0, at) if at < len(WHOLE) else (1, at - len(WHOLE))
    if cut:
        del damaged[which][at:]
    else:
        damaged[which][at] = byte
    restore_or_refuse([bytes(each) for each in damaged])


def restore_or_refuse(given: list[bytes]) -> None:
    try:
        kept = decode(given)
    except InvalidRecord:
        return
    assert kept.start <= kept.end
    ledger = Ledger.restore(SETTINGS, random.Random(0), kept, now=NOW)
    assert kept.start <= ledger.start <= ledger.end == kept.end


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(b"\x02\x00\x00\x00\x00\x00", id="another version"),
        pytest.param(b"\x01\x05\x04\x00\x00\x00", id="ends before it starts"),
        pytest.param(b"\x01\x00\x04\x00\x00\x00\x08\x01\x01\x00", id="a run behind its end"),
        pytest.param(b"\x01\x03\x04\x00\x00\x00\x00\x01\x01\x00", id="a run before its start"),
        pytest.param(b"\x01\x00\x04\x00\x00\x00\x00\x00\x01\x00", id="a run of nothing"),
        pytest.param(b"\x01\x00\x04\x00\x00\x00\x00\x01\x07", id="a state of no kind"),
        pytest.param(b"\x01\x00\x04\x00\x00\x00\x00\x01\x02\x01\x01\x00", id="a holder without a name"),
        pytest.param(b"\x01" + b"\xff" * 12, id="a number without an end"),
    ],
)
def test_a_document_that_contradicts_itself_is_refused(document: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decode([document])
