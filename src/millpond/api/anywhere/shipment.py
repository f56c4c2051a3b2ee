"""Messages of one request, for however many partitions: what became of each, until all is known.

Invariant: `on_done` is called once, when every message is kept or refused.
Driven by the doors' produce calls, on the broker's loop.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from millpond.api.anywhere.producing import BATCH_BYTES_MAX, Parcel, Producing, asks_for_delay
from millpond.client.batches import record_bytes
from millpond.model.errors import MillpondError
from millpond.model.ids import TopicPartition
from millpond.protocol.records import NewRecord

Numbered = tuple[int, NewRecord]
"""A record, and which of the request's messages it is."""


class Shipment:
    def __init__(self, count: int, on_done: "Callable[[Shipment], None]") -> None:
        self.places: list[tuple[int, int]] = [(0, 0)] * count
        """Partition and offset of each."""
        self.errors: dict[int, MillpondError] = {}
        self._on_done = on_done
        self._missing = count

    def send(self, producing: Producing, placed: Mapping[TopicPartition, Sequence[Numbered]]) -> None:
        parcels = [
            (at, self._parcel(at.partition, *part))
            for at, numbered in placed.items()
            for alike in _apart(numbered)
            for part in _parts(alike)
        ]  # all of them, before the first can be done
        for at, parcel in parcels:
            producing.send(at, parcel)

    def _parcel(self, partition: int, numbered: Sequence[Numbered], size: int) -> Parcel:
        numbers, records = zip(*numbered, strict=True)

        def done(offsets: Sequence[int], error: MillpondError | None) -> None:
            if error is None:
                for number, offset in zip(numbers, offsets, strict=True):
                    self.places[number] = (partition, offset)
            else:
                self.errors.update(dict.fromkeys(numbers, error))
            self._missing -= len(numbers)
            if not self._missing:
                self._on_done(self)

        return Parcel(list(records), size, done)

    @property
    def first_error(self) -> MillpondError:
        return self.errors[min(self.errors)]

    def told(self) -> str:
        """Where some were refused."""
        return f"{len(self.errors)} of {len(self.places)} messages were not kept; the first: {self.first_error}"


def size_of(record: NewRecord) -> int:
    return record_bytes(record.value, record.key, record.headers)


def _apart(numbered: Sequence[Numbered]) -> list[Sequence[Numbered]]:
    """Those for now, and those for later."""
    later = [each for each in numbered if each[1].headers and asks_for_delay(each[1])]
    if not later or len(later) == len(numbered):
        return [numbered]
    numbers = {number for number, _ in later}
    return [[each for each in numbered if each[0] not in numbers], later]


def _parts(numbered: Sequence[Numbered]) -> Iterator[tuple[Sequence[Numbered], int]]:
    """With their sizes, so that each fits a batch, unless it is one message."""
    sizes = [record_bytes(value, key, headers) for _, (value, key, _, headers) in numbered]
    if (total := sum(sizes)) <= BATCH_BYTES_MAX:
        yield numbered, total
        return
    part: list[Numbered] = []
    size = 0
    for each, more in zip(numbered, sizes, strict=True):
        if part and size + more > BATCH_BYTES_MAX:
            yield part, size
            part, size = [], 0
        part.append(each)
        size += more
    yield part, size
