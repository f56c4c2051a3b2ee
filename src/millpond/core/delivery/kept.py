"""What one partition of `__share_group_state` keeps: for each key the last whole document and the changes since.

A key is written by the machine that runs at the leader of its topic partition. A writer is that leader's epoch and a
session, which counts how often it loaded. Each document has a number, which counts from 1 in every session.

Invariants: of the writers that loaded a key only the newest changes it. A document takes effect once, however often it
is sent, and a change only directly behind the document before it. Whoever applies the records from `oldest` on, or from
any place before it that is still there, knows the same.
Pure. Driven by broker/drivers/state_shard.py, which appends what `step` returns to its log, and waits until it is kept.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import field, replace
from enum import Enum
from typing import NamedTuple, assert_never

from millpond.model.ids import Offset
from millpond.model.limits import STATE_BYTES_MAX, STATE_CHANGES_MAX, STATE_DOCUMENT_BYTES_MAX
from millpond.model.values import dataclass

RECORD_BYTES = 64
"""About what a record takes beside its names and its document."""


class StateKey(NamedTuple):
    kind: str
    """Of machine, such as `share` or `delays`."""
    group: str
    topic_id: bytes
    partition: int


class Writer(NamedTuple):
    """The newer one is the greater one."""

    epoch: int
    session: int


# What can be asked


class Load(NamedTuple):
    key: StateKey
    writer: Writer


class Keep(NamedTuple):
    key: StateKey
    writer: Writer
    sequence: int
    document: bytes
    whole: bool


class Forget(NamedTuple):
    key: StateKey


class ForgetGroup(NamedTuple):
    kind: str
    group: str


class Find(NamedTuple):
    """Which keys there are of a kind, with their last documents; nobody is fenced."""

    kind: str
    group: str | None = None
    """None: of all groups."""
    topic_id: bytes | None = None


Request = Load | Keep | Forget | ForgetGroup | Find


class Outcome(Enum):
    DONE = 0
    FENCED = 1
    """A newer writer has loaded the key since, or nobody has."""
    GAP = 2
    """The document before this one is not here: only a whole one can follow."""
    TOO_LARGE = 3
    """Only a whole document can follow, and a smaller one."""


class Answer(NamedTuple):
    outcome: Outcome
    documents: tuple[bytes, ...] = ()
    """Of a load. Where it was fenced by a session of its own epoch, that session, as eight bytes."""
    keys: tuple[StateKey, ...] = ()
    """With one document each, where keys were asked for."""


# What is kept


class Taken(NamedTuple):
    """By a writer: those before it are fenced."""

    key: StateKey
    writer: Writer


class Kept(NamedTuple):
    key: StateKey
    writer: Writer
    sequence: int
    document: bytes
    whole: bool


class Rewritten(NamedTuple):
    """All that is known of a key, once more, so that the log before it can go."""

    key: StateKey
    writer: Writer
    sequence: int
    documents: tuple[bytes, ...]


class Forgotten(NamedTuple):
    key: StateKey


Record = Taken | Kept | Rewritten | Forgotten


@dataclass(frozen=True, slots=True)
class State:
    writer: Writer
    oldest: Offset = field(compare=False)
    """Of the records that are still needed."""
    sequence: int = 0
    documents: tuple[bytes, ...] = ()
    size: int = RECORD_BYTES
    """About what it takes in the log, in bytes."""


class KeptStates:
    def __init__(self) -> None:
        self.states: dict[StateKey, State] = {}
        self.needed_bytes = 0
        """About what it would take to write everything that is needed once more."""

    def step(self, request: Request, *, at: Offset) -> tuple[list[Record], Answer]:
        """What to append, from offset `at` on, and what to answer once all up to there is kept. It is applied."""
        records, outcome = self._decide(request)
        for place, record in enumerate(records):
            self.apply(record, Offset(at + place))
        if isinstance(request, Load):
            state = self.states[request.key]
            if outcome is Outcome.DONE:
                return records, Answer(outcome, state.documents)
            if state.writer.epoch == request.writer.epoch:
                return records, Answer(outcome, (state.writer.session.to_bytes(8, "big"),))
        if isinstance(request, Find):
            found = {key: state.documents[-1] for key, state in self._meant(request) if state.documents}
            return records, Answer(outcome, tuple(found.values()), tuple(found))
        return records, Answer(outcome)

    def _meant(self, request: Find) -> Iterator[tuple[StateKey, State]]:
        for key, state in self.states.items():
            is_of_group = key.kind == request.kind and request.group in (None, key.group)
            if is_of_group and request.topic_id in (None, key.topic_id):
                yield key, state

    def _decide(self, request: Request) -> tuple[list[Record], Outcome]:
        match request:
            case Load(key, writer):
                return self._load(writer, Taken(key, writer))
            case Keep():
                return self._keep(request)
            case Forget(key):
                return self.forgetting(lambda each: each == key), Outcome.DONE
            case ForgetGroup(kind, group):
                return self.forgetting(lambda each: (each.kind, each.group) == (kind, group)), Outcome.DONE
            case Find():
                return [], Outcome.DONE
            case _:
                assert_never(request)

    def _load(self, writer: Writer, taken: Taken) -> tuple[list[Record], Outcome]:
        state = self.states.get(taken.key)
        if state is None or state.writer < writer:
            return [taken], Outcome.DONE
        return [], Outcome.DONE if state.writer == writer else Outcome.FENCED

    def _keep(self, request: Keep) -> tuple[list[Record], Outcome]:
        key, writer, sequence, document, whole = request
        state = self.states.get(key)
        if state is None or state.writer != writer:  # also one that is newer: it has to load
            return [], Outcome.FENCED
        if sequence <= state.sequence:
            return [], Outcome.DONE  # sent again, or behind a whole one that stands for it
        if not whole and sequence != state.sequence + 1:
            return [], Outcome.GAP
        is_full = not whole and (
            len(state.documents) > STATE_CHANGES_MAX or state.size + len(document) > STATE_BYTES_MAX
        )
        if is_full or len(document) > STATE_DOCUMENT_BYTES_MAX:
            return [], Outcome.TOO_LARGE
        return [Kept(key, writer, sequence, document, whole)], Outcome.DONE

    def forgetting(self, is_meant: Callable[[StateKey], bool]) -> list[Record]:
        return [Forgotten(key) for key in self.states if is_meant(key)]

    def of_topics(self, topic_ids: Collection[bytes]) -> list[Record]:
        """What to append when these topics are gone."""
        return self.forgetting(lambda key: key.topic_id in topic_ids)

    def apply(self, record: Record, at: Offset) -> None:
        """Also while the log is read: then what a record builds on may be gone, and something later stands for both."""
        before = self.states.pop(record.key, None)
        after = _after(before, record, at)
        if before is not None:
            self.needed_bytes -= before.size
        if after is not None:
            self.states[record.key] = after
            self.needed_bytes += after.size

    # The log's start

    @property
    def oldest(self) -> Offset | None:
        """The first record that is still needed; None where none is."""
        return min((state.oldest for state in self.states.values()), default=None)

    def rewrites(self, *, bytes_max: int) -> list[Rewritten]:
        """Of the keys that hold the log's start back, those first that do so most: one at least, if there is any."""
        rewritten: list[Rewritten] = []
        size = 0
        for key, state in sorted(self.states.items(), key=lambda each: each[1].oldest):
            if rewritten and size + state.size > bytes_max:
                break
            rewritten.append(Rewritten(key, state.writer, state.sequence, state.documents))
            size += state.size
        return rewritten


def _after(before: State | None, record: Record, at: Offset) -> State | None:
    match record:
        case Taken(_, writer):
            return State(writer, at) if before is None else replace(before, writer=writer, sequence=0)
        case Kept(_, writer, sequence, document, whole):
            if whole or before is None:
                return _state(writer, at, sequence, (document,))
            size = before.size + RECORD_BYTES + len(document)
            return State(writer, before.oldest, sequence, (*before.documents, document), size)
        case Rewritten(_, writer, sequence, documents):
            return _state(writer, at, sequence, documents)
        case Forgotten():
            return None
        case _:
            assert_never(record)


def _state(writer: Writer, at: Offset, sequence: int, documents: tuple[bytes, ...]) -> State:
    size = RECORD_BYTES + sum(RECORD_BYTES + len(document) for document in documents)
    return State(writer, at, sequence, documents, size)
