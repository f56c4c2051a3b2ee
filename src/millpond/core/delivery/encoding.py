"""What is kept of a ledger, as bytes: a whole one, and what changed since.

    version    one byte, 1
    start      everything below is done
    end        nothing from here on was ever handed out
    producer   in whose name the doomed are sent on, and 1; 0: nobody's
    sequence   the next number in it
    texts      how many; then each one: its length in bytes, and UTF-8
    then for each run of messages that changed, in order:
    first      how far from the end of the run before, zigzag
    count      of messages
    kind       0 done, 1 ready, 2 leased, 3 waiting, 4 doomed
    attempts   not for 0
    leased:    lock in milliseconds, number of the text that names the holder
    waiting:   when it is due, in milliseconds since 1970
    doomed:    what makes the offset a sequence number, zigzag; number of the text that says why

All numbers are varints: seven bits a byte, lowest first, the top bit set on all but the last. So a run takes about five
bytes. A whole document begins with nothing open; later ones are applied on top, in order. Lanes and monotonic times are
not kept: both are found anew. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from millpond.core.delivery.ledger import Change, Ledger, Remembered
from millpond.core.delivery.runs import Runs
from millpond.core.delivery.states import Doomed, Lane, Leased, Ready, State, Waiting
from millpond.model.errors import InvalidRecord

VERSION: Final = 1
_BITS_MAX: Final = 70


def encode(ledger: Ledger, changes: Iterable[Change]) -> bytes:
    texts: dict[str, int] = {}
    runs = bytearray()
    at = 0
    for change in changes:
        first, last = change.first, change.last
        _put(runs, _zigzag(first - at), last - first + 1, *_told(change.state, texts))
        at = last + 1
    head = bytearray((VERSION,))
    _put(head, ledger.start, ledger.end, ledger.producer_id + 1, ledger.next_sequence, len(texts))
    for text in texts:
        data = text.encode()
        _put(head, len(data))
        head += data
    return bytes(head + runs)


def encode_whole(ledger: Ledger) -> bytes:
    return encode(ledger, (Change(*run) for run in ledger.open_runs()))


def _told(state: State | None, texts: dict[str, int]) -> tuple[int, ...]:
    """Its kind, and what goes with that."""
    match state:
        case None:
            return (0,)
        case Leased():
            return 2, state.attempts, state.lock_ms, texts.setdefault(state.holder, len(texts))
        case Ready():
            return 1, state.attempts
        case Waiting():
            return 3, state.attempts, state.due_wall_ms
        case Doomed():
            return 4, state.attempts, _zigzag(state.sequence_shift), texts.setdefault(state.reason, len(texts))


def _put(out: bytearray, *numbers: int) -> None:
    for number in numbers:
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (~number << 1) | 1


def first_unfinished(document: bytes) -> int:
    """Where the ledger's start is, as its last document says."""
    return decode((document,)).start


def decode(documents: Sequence[bytes]) -> Remembered:
    """A whole one and those after it."""
    runs: Runs[State] = Runs()
    start = end = next_sequence = 0
    producer_id = -1
    for document in documents:
        try:
            reader = _Reader(document)
            if (version := reader.number()) != VERSION:
                raise InvalidRecord(f"a ledger of version {version}; this broker reads {VERSION}: use a newer one")
            start, end, producer_id = reader.number(), reader.number(), reader.number() - 1
            next_sequence = reader.number()
            texts = [reader.text() for _ in range(reader.number())]
            at = 0
            while reader.has_more:
                at = _apply(reader, runs, texts, at)
        except (IndexError, UnicodeDecodeError) as error:
            raise InvalidRecord(f"a ledger of {len(document)} bytes is cut short, or lies about a length") from error
    _check_within(runs, start, end)
    return Remembered(start, end, producer_id, next_sequence, runs)


def _check_within(runs: Runs[State], start: int, end: int) -> None:
    spans = [(run.first, run.last) for run in runs]
    lowest, highest = (spans[0][0], spans[-1][1]) if spans else (start, end - 1)
    if not start <= end or lowest < start or highest >= end:
        raise InvalidRecord(f"a ledger from {start} to {end} knows of offsets {lowest} to {highest}")


def _apply(reader: "_Reader", runs: Runs[State], texts: list[str], at: int) -> int:
    first = at + reader.signed()
    end = first + reader.number()
    if not 0 <= first < end:
        raise InvalidRecord(f"offsets {first} to {end - 1} are no run")
    state = _state(reader, texts)
    if state is None:
        runs.clear(first, end - 1)
    else:
        runs.set(first, end - 1, state)
    return end


def _state(reader: "_Reader", texts: list[str]) -> State | None:
    match reader.number():
        case 0:
            return None
        case 1:
            return Ready(reader.number())
        case 2:
            attempts, lock_ms, holder = reader.number(), reader.number(), texts[reader.number()]
            return Leased(attempts, Lane.NORMAL, holder, lock_ms, 0)
        case 3:
            return Waiting(reader.number(), Lane.NORMAL, reader.number(), 0)
        case 4:
            attempts, shift = reader.number(), reader.signed()
            return Doomed(attempts, texts[reader.number()], shift)
        case kind:
            raise InvalidRecord(f"a state of kind {kind}; those of version {VERSION} are 0 to 4")


class _Reader:
    """Raises IndexError where the bytes end early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def has_more(self) -> bool:
        return self._at < len(self._data)

    def number(self) -> int:
        number = shift = 0
        while (byte := self._data[self._at]) > 0x7F:
            number |= (byte & 0x7F) << shift
            shift += 7
            self._at += 1
            if shift > _BITS_MAX:
                raise InvalidRecord("a number of more than 70 bits")
        self._at += 1
        return number | byte << shift

    def signed(self) -> int:
        raw = self.number()
        return raw >> 1 if raw & 1 == 0 else ~(raw >> 1)

    def text(self) -> str:
        end = self.number() + self._at
        if end > len(self._data):
            raise IndexError(end)
        text = self._data[self._at : end].decode()
        self._at = end
        return text
