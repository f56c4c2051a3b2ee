"""Records of delayed messages, read from the log one by one: where they are, of the batches that were asked for last.

Invariant: what is returned is what its producer sent, checked as the topic's reads are.
Blocks on the disk, as all reads of a log do. Driven by delays.py.
"""

from collections import OrderedDict
from typing import Final

from millpond.broker.drivers.partition import Partition
from millpond.core.delivery.parked_format import Aside, Carried, Parked, Shelved, fact_of
from millpond.core.delivery.shelf import Shelf
from millpond.model.errors import LogClosed, LogCorrupted
from millpond.model.ids import Offset
from millpond.model.limits import INFLATED_BYTES_MAX, MIB
from millpond.protocol.records import parse_header

SHELVES_BYTES_MAX: Final = 16 * MIB
"""Of what is known about where records lie: eight bytes for each that is not compressed."""


class Shelves:
    def __init__(self, partition: Partition) -> None:
        self._log = partition.log
        self._by_place: OrderedDict[Offset, Shelf] = OrderedDict()
        self._size_bytes = 0

    def __contains__(self, place: Offset) -> bool:
        return place in self._by_place

    @property
    def is_full(self) -> bool:
        """What was asked for longest ago gives way to what is asked for now."""
        return self._size_bytes > 0.9 * SHELVES_BYTES_MAX

    def take(self, place: Offset, id_: int) -> Shelved:
        shelf = self._by_place.get(place)
        if shelf is None:
            shelf = self.put_up(place)
        else:
            self._by_place.move_to_end(place)
        log, start = self._log, shelf.position
        if log.is_closed:
            raise LogClosed(f"{log.name} is closed")
        segment = log.segments.holding(place)
        try:
            found = shelf.take(id_, lambda begin, size: segment.read_at(start + begin, size))
        except OSError as error:
            raise log.unreadable(error) from error
        if found is None:
            raise LogCorrupted(segment.path, start, f"the record of message {id_} is not what it was")
        return found

    def put_up(self, place: Offset) -> Shelf:
        """Of the control batch that begins there, which is read and checked as a whole."""
        log = self._log
        data = log.read(place, bytes_max=1).data
        header = parse_header(data)
        fact = fact_of(data, 0, header)
        assert isinstance(fact, Parked | Carried | Aside), f"no message is parked at {place} of {log.name}"
        shelf = self._by_place[place] = Shelf(
            header,
            fact,
            position=log.segments.holding(place).position_of(place),
            verify=log.settings.verify_reads,
            inflated_bytes_max=INFLATED_BYTES_MAX,
        )
        self._size_bytes += shelf.size_bytes
        while self._size_bytes > SHELVES_BYTES_MAX and len(self._by_place) > 1:
            self._size_bytes -= self._by_place.popitem(last=False)[1].size_bytes
        return shelf
