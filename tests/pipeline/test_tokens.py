"""A commit that is done again, in whole or in part, by one or by two, is in the log once."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.client import TopicPartition
from millpond.model.errors import OutOfOrderSequence, StaleProducerEpoch
from millpond.pipeline.committing import CommitWriter, Rows
from millpond.pipeline.link import Link
from millpond.pipeline.options import Connection
from millpond.pipeline.tokens import EPOCHS, Commit
from millpond.protocol.compression import Codec
from millpond.testing.broker import InProcessBroker
from tests.pipeline.topics import everything

pytestmark = pytest.mark.slow


def rows_of(numbers: range) -> Rows:
    values = [b"%06d" % number for number in numbers]
    return Rows(pa.array(values, pa.binary()), pa.array(values, pa.binary()), None)


def write(
    link: Link, topic: str, commit: Commit, chunks: list[Rows], *, finishes: bool = True, batch_bytes: int = 200
) -> None:
    """What a task does; one that does not finish leaves what was not sent, as one that is killed."""

    async def work() -> None:
        writer = CommitWriter(link.cluster, commit, task=0, codec=Codec.NONE, batch_bytes=batch_bytes)
        await link.cluster.topic(topic)
        try:
            for rows in chunks:
                await writer.add(TopicPartition(topic, 0), rows)
            if finishes:
                await writer.finish()
        finally:
            await writer.close()

    link.run(work())


def values(broker: InProcessBroker, topic: str) -> list[int]:
    return [int(each.value or b"") for each in everything(broker.bootstrap, topic)]


COUNT = st.integers(1, 60)


@settings(max_examples=25)
@given(tries=st.lists(st.tuples(COUNT, st.lists(st.integers(0, 60), max_size=3)), max_size=4), total=COUNT)
def test_whatever_was_sent_before_each_row_is_there_once(
    broker: InProcessBroker, tries: list[tuple[int, list[int]]], total: int
) -> None:
    """Each try gets some of the rows, cut into chunks as it happens; the last one gets them all."""
    topic = f"tries-{np.random.default_rng().integers(1 << 60)}"
    broker.create_topic(topic)
    with Link(Connection(broker.bootstrap)) as link:
        for number in (0, 1):
            first = 100 * number
            for count, cuts in tries:
                bounds = sorted({0, *(min(cut, count, total) for cut in cuts), min(count, total)})
                chunks = [rows_of(range(first + a, first + b)) for a, b in pairwise(bounds)]
                write(link, topic, Commit("q", number), chunks, finishes=False)
            write(link, topic, Commit("q", number), [rows_of(range(first, first + total))])
        with pytest.raises(StaleProducerEpoch, match="another run of this query is ahead"):
            write(link, topic, Commit("q", 0), [rows_of(range(total))])
    assert values(broker, topic) == [*range(total), *range(100, 100 + total)]


@pytest.mark.parametrize("count", [40, 400])
def test_rows_that_are_others_on_the_second_try_are_refused(broker: InProcessBroker, count: int) -> None:
    """More of them, cut in other places, or in another order: with few batches, and with more than are remembered."""
    topic = f"changing-{count}"
    broker.create_topic(topic)
    with Link(Connection(broker.bootstrap)) as link:
        write(link, topic, Commit("q", 7), [rows_of(range(count))], finishes=False)
        kept = values(broker, topic)
        for numbers, batch_bytes in (
            (range(count + 5), 333),
            (range(count)[::-1], 200),
            (range(len(kept) - 1), 200),
        ):
            with pytest.raises(OutOfOrderSequence, match="commit 7 of q was begun with other rows"):
                write(link, topic, Commit("q", 7), [rows_of(numbers)], batch_bytes=batch_bytes)
        assert values(broker, topic) == kept == list(range(len(kept)))
        write(link, topic, Commit("q", 7), [rows_of(range(count))])
    assert values(broker, topic) == list(range(count))


def test_numbers_have_no_end(broker: InProcessBroker) -> None:
    """An epoch has 15 bits: after so many commits the producer is another."""
    broker.create_topic("long")
    with Link(Connection(broker.bootstrap)) as link:
        for number in (EPOCHS - 1, EPOCHS - 1, EPOCHS, EPOCHS):
            write(link, "long", Commit("q", number), [rows_of(range(number, number + 3))])
    assert values(broker, "long") == [*range(EPOCHS - 1, EPOCHS + 2), *range(EPOCHS, EPOCHS + 3)]
