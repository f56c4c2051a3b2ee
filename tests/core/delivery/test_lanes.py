"""Which message comes next: strict and weighted priority, and an age at which nothing waits any longer."""

from collections import Counter

from msgspec.structs import replace

from millpond.core.delivery import lanes as module
from millpond.core.delivery.lanes import WEIGHTS, Lanes, Offer
from millpond.core.delivery.settings import DeliverySettings, Priority
from millpond.core.delivery.states import Lane

HIGH, NORMAL, LOW = Lane.HIGH, Lane.NORMAL, Lane.LOW
OLD_MS = 60_000


def lanes_of(priority: Priority, **ranges: tuple[int, int]) -> Lanes:
    lanes = Lanes(DeliverySettings(priority=priority, priority_age_ms_max=OLD_MS))
    for name, (first, last) in ranges.items():
        lanes.add(first, last, Lane[name])
    return lanes


def serve(lanes: Lanes, *, wall_ms: int = 0, most: int = 1) -> Offer | None:
    """Takes the next ones, as a ledger does."""
    offer = lanes.next(wall_ms=wall_ms)
    if offer is not None:
        offer = replace(offer, last=min(offer.last, offer.first + most - 1))
        lanes.take(offer.first, offer.last, offer.lane)
    return offer


def test_strict_is_high_before_normal_before_low_and_by_offset_within() -> None:
    lanes = lanes_of(Priority.STRICT, LOW=(0, 1), NORMAL=(2, 2), HIGH=(3, 4))
    served = [serve(lanes) for _ in range(6)]
    assert served == [
        Offer(3, 3, HIGH),
        Offer(4, 4, HIGH),
        Offer(2, 2, NORMAL),
        Offer(0, 0, LOW),
        Offer(1, 1, LOW),
        None,
    ]


def test_weighted_gives_each_lane_its_share() -> None:
    lanes = lanes_of(Priority.WEIGHTED, LOW=(0, 999), NORMAL=(1000, 1999), HIGH=(2000, 2999))
    served = Counter(offer.lane for _ in range(300) if (offer := serve(lanes)) is not None)
    assert served == {lane: 300 * weight // sum(WEIGHTS.values()) for lane, weight in WEIGHTS.items()}


def test_weighted_holds_its_shares_for_those_who_take_many_at_once() -> None:
    lanes = lanes_of(Priority.WEIGHTED, LOW=(0, 999), HIGH=(2000, 2999))
    served: Counter[Lane] = Counter()
    for _ in range(100):
        offer = serve(lanes, most=50)
        assert offer is not None
        served[offer.lane] += offer.last - offer.first + 1
    assert served[HIGH] == 6 * served[LOW]


def test_a_lane_that_is_alone_has_everything() -> None:
    lanes = lanes_of(Priority.WEIGHTED, LOW=(0, 99))
    assert serve(lanes, most=100) == Offer(0, 99, LOW)
    lanes.add(100, 110, LOW)
    lanes.add(120, 130, NORMAL)
    assert serve(lanes, most=100) == Offer(120, 122, NORMAL)


def test_what_has_waited_too_long_goes_first_so_nothing_starves() -> None:
    lanes = lanes_of(Priority.STRICT, LOW=(0, 1), HIGH=(2, 500))
    lanes.mark(0, 1_000, start=0)
    lanes.mark(1, 90_000, start=0)
    lanes.mark(2, 95_000, start=0)
    assert serve(lanes, wall_ms=1_000 + OLD_MS) == Offer(2, 2, HIGH)
    assert serve(lanes, wall_ms=1_001 + OLD_MS) == Offer(0, 0, LOW)
    assert serve(lanes, wall_ms=1_001 + OLD_MS) == Offer(3, 3, HIGH)
    assert serve(lanes, wall_ms=90_001 + OLD_MS) == Offer(1, 1, LOW)


def test_marks_of_what_is_done_are_forgotten_and_there_are_never_too_many() -> None:
    lanes = lanes_of(Priority.STRICT)
    for offset in range(1000):
        lanes.mark(offset, offset * 100, start=offset)
    assert len(lanes._marked) <= 2
    for offset in range(1000, 1000 + 3 * module.MARKS_MAX):
        lanes.mark(offset, offset * 100, start=999)
    assert len(lanes._marked) <= module.MARKS_MAX
    assert lanes._marked == sorted(lanes._marked)
