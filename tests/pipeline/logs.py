"""Record batches as a log may hold them, drawn by hypothesis: gaps, codecs, headers, nulls, control batches."""

from hypothesis import strategies as st

from millpond.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from millpond.model.ids import Sequence as SequenceNumber
from millpond.protocol.records import (
    Codec,
    NewRecord,
    decode_batch,
    encode_batch,
    encode_survivors,
    parse_header,
    stamp_append_time,
)

NAMES = st.text(st.characters(codec="utf-8"), max_size=5)
CONTENTS = st.none() | st.binary(max_size=200)
TIMES = st.integers(-1, 2**42)


@st.composite
def records(draw: st.DrawFn) -> list[NewRecord]:
    if draw(st.booleans()):  # alike, as measurements are
        size, count = draw(st.integers(0, 300)), draw(st.integers(1, 150))
        key = draw(CONTENTS)
        return [NewRecord(bytes(size), key, TimestampMs(draw(TIMES)))] * count
    headers = st.lists(st.tuples(NAMES, CONTENTS), max_size=4).map(tuple) if draw(st.booleans()) else st.just(())
    one = st.builds(NewRecord, CONTENTS, CONTENTS, TIMES, headers)
    return draw(st.lists(one, min_size=1, max_size=70))


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """One after another in offset, as in a log, with gaps where compaction has been."""
    base, made = draw(st.integers(0, 2**40)), []
    for _ in range(draw(st.integers(1, 5))):
        is_control = draw(st.integers(0, 9)) == 0
        batch = encode_batch(
            draw(records()),
            base_offset=Offset(base),
            codec=draw(st.sampled_from(Codec)),
            control=is_control,
            transactional=is_control,
            producer_id=ProducerId(5 if is_control else -1),
            producer_epoch=ProducerEpoch(0 if is_control else -1),
            base_sequence=SequenceNumber(0 if is_control else -1),
        )
        header = parse_header(batch)
        if draw(st.integers(0, 3)) == 0:
            survivors = [each for each in decode_batch(batch) if draw(st.booleans())]
            batch = encode_survivors(survivors, of=header)
        if draw(st.integers(0, 3)) == 0:
            changed = bytearray(batch)
            stamp_append_time(changed, timestamp=TimestampMs(draw(TIMES)))
            batch = bytes(changed)
        made.append(batch)
        base = header.next_offset + draw(st.sampled_from([0, 0, 7]))
    return made
