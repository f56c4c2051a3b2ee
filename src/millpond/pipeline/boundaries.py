"""Where the records of many batches begin and end, found for all of them at once: the part of decoding that resists it.

Each record says only where the next one is, and to go from one to the next in Python takes longer than all else that is
done with them. So their beginnings are guessed, and the guess is proved. A record begins behind the count of headers of
the one before, which nearly always is 0, and behind its length come attributes, always 0 as yet: bytes as

    0 length 0              of one to three bytes, none of which is 0

are looked for in all of the bytes. What is found inside keys and values as well is sorted out by where it leads: a
length that is none seldom ends where another record seems to begin. Lengths that lead from the first record of a batch
through all that were guessed to the batch's end prove the guess. A batch for which they do not is walked in Python.

Invariant: `records` gives exactly what a walk gives, whatever the bytes are, or raises `Unreadable` where it does.
Pure. Driven by decode.py.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from millpond.pipeline.varints import Bytes, Mask, Numbers, Unreadable, read
from millpond.protocol.records.kernel import RECORD_BYTES_MIN

ALIKE_MIN: Final = 8
"""Fewer records than this are not worth a look at whether they are all of one size."""
_LENGTH_BYTES_GUESSED: Final = 3
"""A length of more is of a record of a mebibyte, and there are few of those in a batch."""


def records(data: Bytes, starts: Sequence[int], ends: Sequence[int], counts: Sequence[int]) -> tuple[Numbers, Numbers]:
    """Where records begin, behind their lengths, and where they end.

    Those of a batch lie back to back from its start to its end, and are as many as it counts.
    """
    for start, end, count in zip(starts, ends, counts, strict=True):
        # No memory is set aside for a claim: a batch has no more records than there is room for in its bytes.
        if not 0 < count * RECORD_BYTES_MIN <= end - start:
            raise Unreadable
    batches = list(zip(starts, ends, counts, strict=True))
    found = [
        _walked(data, *batch) if guess is None else guess
        for batch, guess in zip(batches, _guessed(data, starts, ends, counts), strict=True)
    ]
    bodies, stops, proved = _followed(data, found, ends, counts)
    if not proved.all():
        for number in np.unique(np.repeat(np.arange(len(batches)), counts)[~proved]).tolist():
            found[number] = _walked(data, *batches[number])
        bodies, stops, proved = _followed(data, found, ends, counts)
        if not proved.all():
            raise Unreadable
    return bodies, stops


def _followed(
    data: Bytes, found: Sequence[Numbers], ends: Sequence[int], counts: Sequence[int]
) -> tuple[Numbers, Numbers, Mask]:
    """Where records begin behind their lengths and end, and which of them end where the next one begins."""
    begins = np.concatenate(found)
    lengths, bodies = read(data, begins)
    stops = bodies + lengths
    wanted = np.empty_like(begins)
    wanted[:-1] = begins[1:]
    wanted[np.cumsum(counts) - 1] = ends
    return bodies, stops, (stops == wanted) & (lengths >= 0)


# To guess


def _guessed(data: Bytes, starts: Sequence[int], ends: Sequence[int], counts: Sequence[int]) -> list[Numbers | None]:
    """Where the records of each batch begin, if all is as usual; None where their number alone says that it is not."""
    wanted = np.array(counts) - 1
    firsts = np.array(starts)
    likely = _likely(data, starts[0], ends[-1])
    lows, highs = np.searchsorted(likely, firsts, side="right"), np.searchsorted(likely, ends)
    if (highs - lows != wanted).any():
        likely = _leading(data, likely, starts[0], ends)
        lows, highs = np.searchsorted(likely, firsts, side="right"), np.searchsorted(likely, ends)
    return [
        np.concatenate((firsts[number : number + 1], likely[low:high])) if is_so else None
        for number, (low, high, is_so) in enumerate(zip(lows, highs, highs - lows == wanted, strict=True))
    ]


def _likely(data: Bytes, first: int, end: int) -> Numbers:
    """Places between `first` and `end` behind a 0 from which a length leads to another."""
    zeros = np.flatnonzero(data[first:end] == 0)
    gaps = np.diff(zeros)
    befores = np.flatnonzero((gaps > 1) & (gaps <= _LENGTH_BYTES_GUESSED + 1))
    zeros += first
    is_length = data.take(zeros[befores + 1] - 1) < 0x80
    return zeros[befores[is_length]] + 1


def _leading(data: Bytes, likely: Numbers, first: int, ends: Sequence[int]) -> Numbers:
    """Those of them whose length leads to another one, or to the end of a batch."""
    lengths, bodies = read(data, likely)
    is_there = np.zeros(ends[-1] - first + 1, np.bool_)
    is_there[likely - first] = True
    is_there[np.array(ends) - first] = True
    return likely[is_there.take(bodies + lengths - first, mode="clip")]


# To walk


def _walked(data: Bytes, start: int, end: int, count: int) -> Numbers:
    alike = _alike(data, start, end, count) if count >= ALIKE_MIN else None
    return np.array(_chased(data.data, start, end, count), np.int64) if alike is None else alike


def _alike(data: Bytes, start: int, end: int, count: int) -> Numbers | None:
    """Where records begin that are all of one size; None where they are not."""
    size, rest = divmod(end - start, count)
    if rest:
        return None
    starts = np.arange(start, end, size, dtype=np.int64)
    try:
        lengths, after = read(data, starts)
    except Unreadable:  # they are of several sizes after all, and this is the middle of one
        return None
    return starts if bool((after + lengths == starts + size).all()) else None


def _chased(raw: memoryview, start: int, end: int, count: int) -> list[int]:
    """From each record's length to the next record."""
    starts = [0] * count
    place = start
    try:
        for number in range(count):
            starts[number] = place
            byte = raw[place]
            if byte < 0x80:
                place += (byte >> 1) + 1
            elif (second := raw[place + 1]) < 0x80:
                place += ((byte & 0x7F | second << 7) >> 1) + 2
            else:
                place = _after_long(raw, place)
            if place > end:
                raise Unreadable
    except IndexError:
        raise Unreadable from None
    if place != end:
        raise Unreadable
    return starts


def _after_long(raw: memoryview, place: int) -> int:
    length = shift = 0
    while shift < 35:
        byte = raw[place]
        place += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return place + (length >> 1)
        shift += 7
    raise Unreadable
