"""What a shard knows, against a plain model: one list of documents a key, and who may write to it."""

import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from millpond.core.delivery.kept import (
    Answer,
    Find,
    Forget,
    ForgetGroup,
    Forgotten,
    Keep,
    Kept,
    KeptStates,
    Load,
    Outcome,
    Record,
    Request,
    Rewritten,
    StateKey,
    Taken,
    Writer,
)
from millpond.core.delivery.kept_format import (
    decode_answer,
    decode_record,
    decode_request,
    encode_answer,
    encode_record,
    encode_request,
)
from millpond.model.errors import InvalidRecord
from millpond.model.ids import Offset
from millpond.model.limits import STATE_BYTES_MAX, STATE_CHANGES_MAX, STATE_DOCUMENT_BYTES_MAX

KEYS = [StateKey(kind, group, bytes(15) + b"\1", 0) for kind in ("share", "delays") for group in ("a", "b")]
WRITERS = [Writer(epoch, session) for epoch in range(3) for session in range(3)]

keys = st.sampled_from(KEYS)
writers = st.sampled_from(WRITERS)
documents = st.binary(max_size=4)


class World:
    """A shard's log and what it knows."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.known = KeptStates()

    def ask(self, request: Request) -> Answer:
        records, answer = self.known.step(request, at=Offset(len(self.log)))
        self.log += records
        return answer

    def load(self, writer: Writer, key: StateKey = KEYS[0]) -> Answer:
        return self.ask(Load(key, writer))

    def keep(self, writer: Writer, sequence: int, document: bytes, *, whole: bool = False) -> Outcome:
        return self.ask(Keep(KEYS[0], writer, sequence, document, whole)).outcome


def read(log: list[Record], *, since: int = 0) -> KeptStates:
    """As a shard that comes to lead finds it."""
    states = KeptStates()
    for offset, record in enumerate(log[since:], since):
        states.apply(decode_record(*encode_record(record)), Offset(offset))
    return states


class AgainstAPlainModel(RuleBasedStateMachine):
    """The model has a list for each key; a writer sends its documents in order, each as often as it likes."""

    loaded = Bundle("loaded")

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.newest: dict[StateKey, Writer] = {}
        self.lists: dict[StateKey, list[bytes]] = {}
        self.sent: dict[tuple[StateKey, Writer], list[Keep]] = {}
        self.done: dict[tuple[StateKey, Writer], int] = {}

    @rule(target=loaded, key=keys, writer=writers)
    def load(self, key: StateKey, writer: Writer) -> tuple[StateKey, Writer]:
        answer = self.world.ask(Load(key, writer))
        if key in self.newest and writer < self.newest[key]:
            epoch, session = self.newest[key]
            assert answer == Answer(Outcome.FENCED, (session.to_bytes(8, "big"),) if epoch == writer.epoch else ())
        else:
            assert answer == Answer(Outcome.DONE, tuple(self.lists.get(key, [])))
            if self.newest.get(key) != writer:
                self.sent[key, writer], self.done[key, writer] = [], 0
            self.newest[key] = writer
        return key, writer

    @rule(by=loaded, document=documents, whole=st.booleans())
    def keep(self, by: tuple[StateKey, Writer], document: bytes, whole: bool) -> None:
        sent = self.sent.setdefault(by, [])
        keep = Keep(*by, len(sent) + 1, document, whole)
        sent.append(keep)
        self._send(keep)

    @rule(by=loaded, data=st.data())
    def send_again(self, by: tuple[StateKey, Writer], data: st.DataObject) -> None:
        if self.sent.get(by):
            self._send(data.draw(st.sampled_from(self.sent[by])))

    @rule(by=loaded, document=documents)
    def lose_one_on_the_way(self, by: tuple[StateKey, Writer], document: bytes) -> None:
        sent = self.sent.setdefault(by, [])
        sent.append(Keep(*by, len(sent) + 1, document, whole=False))

    def _send(self, keep: Keep) -> None:
        by, outcome = (keep.key, keep.writer), self.world.ask(keep).outcome
        if self.newest.get(keep.key) != keep.writer:
            assert outcome is Outcome.FENCED
        elif keep.sequence <= self.done[by]:
            assert outcome is Outcome.DONE
        elif keep.whole or keep.sequence == self.done[by] + 1:
            assert outcome is Outcome.DONE
            self.lists[keep.key] = [] if keep.whole else self.lists.get(keep.key, [])
            self.lists[keep.key].append(keep.document)
            self.done[by] = keep.sequence
        else:
            assert outcome is Outcome.GAP

    @rule(key=keys)
    def forget(self, key: StateKey) -> None:
        self.world.ask(Forget(key))
        self.newest.pop(key, None)
        self.lists.pop(key, None)

    @rule(key=keys)
    def forget_group(self, key: StateKey) -> None:
        self.world.ask(ForgetGroup(key.kind, key.group))
        self.newest.pop(key, None)
        self.lists.pop(key, None)

    @rule(bytes_max=st.integers(0, 400))
    def rewrite(self, bytes_max: int) -> None:
        before = self.world.known.oldest
        for record in self.world.known.rewrites(bytes_max=bytes_max):
            self.world.known.apply(record, Offset(len(self.world.log)))
            self.world.log.append(record)
        after = self.world.known.oldest
        assert (before is None) == (after is None)
        assert before is None or after is None or after > before

    @invariant()
    def it_knows_what_the_model_knows(self) -> None:
        known = self.world.known.states
        assert {key: state.writer for key, state in known.items()} == self.newest
        assert {key: list(state.documents) for key, state in known.items() if state.documents} == self.lists
        assert self.world.known.needed_bytes == sum(state.size for state in known.values())

    @invariant()
    def so_does_who_reads_the_log_from_anywhere_before_what_is_needed(self) -> None:
        oldest = self.world.known.oldest
        last = len(self.world.log) if oldest is None else oldest
        for since in {0, last // 2, last}:
            found = read(self.world.log, since=since)
            assert found.states == self.world.known.states
            assert (found.oldest, found.needed_bytes) == (oldest, self.world.known.needed_bytes)


TestAgainstAPlainModel = AgainstAPlainModel.TestCase

OLD, NEW = Writer(4, 1), Writer(5, 0)


def test_who_loads_gets_the_last_whole_document_and_the_changes_since() -> None:
    world = World()
    assert world.load(OLD) == Answer(Outcome.DONE)
    for sequence, document in enumerate([b"1", b"2", b"3"], 1):
        assert world.keep(OLD, sequence, document, whole=document == b"2") is Outcome.DONE
    assert world.load(NEW) == Answer(Outcome.DONE, (b"2", b"3"))


def test_the_fence_is_in_the_log() -> None:
    world = World()
    world.load(OLD)
    world.keep(OLD, 1, b"1", whole=True)
    world.load(NEW)
    world.known = read(world.log)
    assert world.keep(OLD, 2, b"2") is Outcome.FENCED
    assert world.load(OLD) == Answer(Outcome.FENCED)


def test_a_writer_that_loads_again_is_not_mistaken_by_what_it_sent_before() -> None:
    world = World()
    world.load(Writer(4, 1))
    world.load(Writer(4, 2))
    assert world.keep(Writer(4, 1), 1, b"late") is Outcome.FENCED
    assert world.keep(Writer(4, 2), 1, b"new") is Outcome.DONE
    assert world.load(NEW).documents == (b"new",)


def test_a_whole_document_may_follow_one_that_was_lost_and_stands_for_it() -> None:
    world = World()
    world.load(OLD)
    assert world.keep(OLD, 2, b"2") is Outcome.GAP
    assert world.keep(OLD, 3, b"3", whole=True) is Outcome.DONE
    assert world.keep(OLD, 2, b"2") is Outcome.DONE
    assert world.load(NEW).documents == (b"3",)


def test_changes_are_bounded_and_a_whole_document_makes_room() -> None:
    world = World()
    world.load(OLD)
    sequence = 1
    while world.keep(OLD, sequence, b"x") is Outcome.DONE:
        sequence += 1
    assert STATE_CHANGES_MAX <= sequence - 1 <= STATE_CHANGES_MAX + 1
    assert world.keep(OLD, sequence, b"x") is Outcome.TOO_LARGE
    assert world.keep(OLD, sequence + 1, b"w", whole=True) is Outcome.DONE
    assert world.keep(OLD, sequence + 2, b"x") is Outcome.DONE


def test_documents_are_bounded_in_bytes_one_and_all() -> None:
    world = World()
    world.load(OLD)
    assert world.keep(OLD, 1, bytes(STATE_DOCUMENT_BYTES_MAX + 1), whole=True) is Outcome.TOO_LARGE
    assert world.keep(OLD, 1, bytes(STATE_DOCUMENT_BYTES_MAX), whole=True) is Outcome.DONE
    assert world.keep(OLD, 2, bytes(STATE_BYTES_MAX - STATE_DOCUMENT_BYTES_MAX)) is Outcome.TOO_LARGE


def test_states_of_a_topic_that_is_gone_are_forgotten() -> None:
    world = World()
    other = StateKey("share", "a", bytes(16), 0)
    world.load(OLD)
    world.load(OLD, other)
    assert world.known.of_topics({other.topic_id}) == [Forgotten(other)]


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
topic_ids = st.binary(min_size=16, max_size=16)
state_keys = st.builds(StateKey, names, names, topic_ids, st.integers(0, 2**31 - 1))
numbers = st.integers(0, 2**63 - 1)
any_writer = st.builds(Writer, numbers, numbers)
many = st.lists(documents, max_size=3).map(tuple)
records = st.one_of(
    st.builds(Taken, state_keys, any_writer),
    st.builds(Kept, state_keys, any_writer, numbers, documents, st.booleans()),
    st.builds(Rewritten, state_keys, any_writer, numbers, many),
    st.builds(Forgotten, state_keys),
)
requests = st.one_of(
    st.builds(Load, state_keys, any_writer),
    st.builds(Keep, state_keys, any_writer, numbers, documents, st.booleans()),
    st.builds(Forget, state_keys),
    st.builds(ForgetGroup, names, names),
    st.builds(Find, names, st.none() | names, st.none() | topic_ids),
)
answers = st.builds(Answer, st.sampled_from(Outcome), many, st.lists(state_keys, max_size=3).map(tuple))


@given(records)
def test_a_record_comes_back_from_its_bytes(record: Record) -> None:
    assert decode_record(*encode_record(record)) == record


@given(requests, answers)
def test_so_do_requests_and_answers(request: Request, answer: Answer) -> None:
    assert decode_request(encode_request(request)) == request
    assert decode_answer(encode_answer(answer)) == answer


@given(st.binary(max_size=80), st.binary(max_size=40))
def test_bytes_that_are_none_of_these_are_refused(first: bytes, second: bytes) -> None:
    for decode in (decode_request, decode_answer, lambda data: decode_record(data, second)):
        try:
            decode(first)
        except InvalidRecord:
            continue


def test_records_of_a_later_version_are_refused() -> None:
    key, value = encode_record(Kept(KEYS[0], OLD, 1, b"x", whole=True))
    assert value is not None
    with pytest.raises(InvalidRecord, match="version 1"):
        decode_record(b"\0\1" + key[2:], value)
    with pytest.raises(InvalidRecord, match="version 1"):
        decode_record(key, b"\0\1" + value[2:])


def test_the_bytes_of_a_record_are_these() -> None:
    key, value = encode_record(Kept(StateKey("share", "g", bytes(range(16)), 7), Writer(3, 9), 2, b"doc", whole=False))
    assert key.hex() == "00000005" + b"share".hex() + "0001" + b"g".hex() + bytes(range(16)).hex() + "00000007"
    assert value is not None
    assert value.hex() == "00000001000000000000000300000000000000090000000000000002" + b"doc".hex()
