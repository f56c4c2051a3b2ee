"""Messages of one key, one at a time and in order: also after a restart, and where keys counted for nothing before."""

import random
from dataclasses import replace

from millpond.core.delivery.encoding import decode, encode_whole
from millpond.core.delivery.key_order import Behind, KeyOrder
from millpond.core.delivery.ledger import Ledger, Verdict
from millpond.core.delivery.settings import DeliverySettings, Priority
from millpond.core.delivery.states import Lane, Outcome
from millpond.model.instant import Instant

BY_KEY = DeliverySettings(is_ordered_by_key=True)
WALL_MS = 1_700_000_000_000
N, H = Lane.NORMAL, Lane.HIGH


def at(ms: int) -> Instant:
    return Instant(ms, WALL_MS + ms)


def let_in(ledger: Ledger, *keys: bytes | None) -> None:
    for offset, key in enumerate(keys):
        if offset >= ledger.frontier:
            ledger.admit(offset, lane=N, key=key, written_wall_ms=WALL_MS)


def receive(ledger: Ledger, ms: int = 0) -> list[int]:
    """All that can be had now."""
    offsets = []
    ledger.tick(at(ms))
    while (offer := ledger.offer(at(ms))) is not None:
        deliveries = ledger.acquire(offer, holder="anna", lock_ms=1000, now=at(ms))
        offsets += [offset for run in deliveries for offset in range(run.first, run.last + 1)]
    return offsets


def accept(ledger: Ledger, offset: int, ms: int = 0) -> None:
    ledger.acknowledge([Verdict(offset, offset, Outcome.ACCEPT)], holder="anna", now=at(ms))


def restarted(ledger: Ledger, settings: DeliverySettings, ms: int) -> Ledger:
    return Ledger.restore(settings, random.Random(0), decode([encode_whole(ledger)]), now=at(ms))


def test_one_of_each_key_at_a_time_and_those_without_a_key_at_once() -> None:
    ledger = Ledger(BY_KEY, random.Random(0), start=0)
    let_in(ledger, b"a", b"a", b"b", None, None, b"a", b"b")
    assert receive(ledger) == [0, 2, 3, 4]
    accept(ledger, 0)
    assert receive(ledger) == [1]
    accept(ledger, 2)
    assert receive(ledger) == [6]
    accept(ledger, 1)
    assert receive(ledger) == [5]


def test_one_that_is_given_back_holds_up_its_key_and_no_other() -> None:
    ledger = Ledger(replace(BY_KEY, backoff_ms=500, jitter=0.0), random.Random(0), start=0)
    let_in(ledger, b"a", b"a", b"b", b"b")
    assert receive(ledger) == [0, 2]
    ledger.acknowledge([Verdict(0, 0, Outcome.RELEASE)], holder="anna", now=at(0))
    accept(ledger, 2)
    assert receive(ledger, 1) == [3]
    assert receive(ledger, 500) == [0]


def test_one_that_is_buried_or_deleted_lets_the_next_through() -> None:
    ledger = Ledger(BY_KEY, random.Random(0), start=0)
    let_in(ledger, b"a", b"a", b"a", b"a")
    assert receive(ledger) == [0]
    ledger.acknowledge([Verdict(0, 0, Outcome.REJECT)], holder="anna", now=at(0))
    assert receive(ledger) == []
    ledger.buried(0, 0)
    assert receive(ledger) == [1]
    ledger.trim(3)
    assert receive(ledger) == [3]


def test_many_offsets_without_a_message_are_skipped_for_the_price_of_the_keys_that_are_here() -> None:
    ledger = Ledger(BY_KEY, random.Random(0), start=0)
    let_in(ledger, b"x", b"x")
    ledger.skip_until(10**12)
    assert receive(ledger) == [0]
    accept(ledger, 0)
    assert receive(ledger) == [1]


def test_a_restart_forgets_no_key() -> None:
    ledger = Ledger(BY_KEY, random.Random(0), start=0)
    keys = b"a", b"a", b"b", b"a"
    let_in(ledger, *keys)
    assert receive(ledger) == [0, 2]
    ledger = restarted(ledger, BY_KEY, 0)
    let_in(ledger, *keys)
    assert receive(ledger, 900) == []
    assert receive(ledger, 1000) == [0, 2]
    accept(ledger, 0, 1000)
    assert receive(ledger, 1000) == [1]


def test_leases_of_a_group_that_was_not_ordered_come_back_in_order() -> None:
    """Two of a key are with consumers when the group is told to keep the order."""
    ledger = Ledger(DeliverySettings(), random.Random(0), start=0)
    ledger.admit_until(3)
    assert receive(ledger) == [0, 1, 2]
    ledger = restarted(ledger, BY_KEY, 0)
    let_in(ledger, b"a", b"a", b"b")
    assert receive(ledger, 1000) == [0, 2]
    accept(ledger, 0, 1000)
    assert receive(ledger, 1000) == [1]


def test_a_lease_that_runs_out_before_its_message_was_looked_at_again_waits_for_that() -> None:
    by_both = replace(BY_KEY, priority=Priority.STRICT)
    ledger = Ledger(by_both, random.Random(0), start=0)
    ledger.admit(0, lane=H, key=b"a", written_wall_ms=WALL_MS)
    assert receive(ledger) == [0]
    ledger = restarted(ledger, by_both, 0)
    assert receive(ledger, 5000) == []
    ledger.admit(0, lane=H, key=b"a", written_wall_ms=WALL_MS)
    assert (ledger.ready, ledger.depth(H), ledger.depth(N)) == (1, 1, 0)
    assert receive(ledger, 5000) == [0]


def test_who_is_in_front_and_who_is_behind() -> None:
    keys = KeyOrder()
    assert keys.admit(0, b"a", N)
    assert not keys.admit(1, b"a", H)
    assert keys.admit(2, None, N)
    assert (keys.size, keys.is_behind(0), keys.is_behind(1), keys.is_behind(2)) == (2, False, True, False)
    assert keys.finish(0) == Behind(1, H)
    assert (keys.size, keys.is_behind(1)) == (1, False)
    assert keys.finish(1) is None
    assert keys.finish(1) is None
    assert keys.size == 0
