"""What ShareFetch and ShareAcknowledge have in common: sessions, and acknowledgements as a ledger takes them."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import Final, Protocol

from msgspec import Struct

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.delivery.ledger import Verdict
from millpond.core.delivery.sessions import OPENING, Member, PartitionId, Session, Trouble
from millpond.core.delivery.states import Outcome
from millpond.model.errors import InvalidRequest, MillpondError, NotLeader

OFFSETS_MAX: Final = 1_000_000
"""In one acknowledgement that names a type for each."""

_OUTCOMES: Final = tuple(Outcome)
_GAP, _REJECT, _RENEW = int(Outcome.GAP), int(Outcome.REJECT), int(Outcome.RENEW)

# Codes that share consumers know what to do with; any other ends them.
_UNDERSTOOD: Final = frozenset({2, 3, 6, 9, 29, 42, 56, 74, 78, 100, 103, 121})


class Batch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class Part(Protocol):
    partition_index: int

    @property
    def acknowledgement_batches(self) -> Sequence[Batch]: ...


class Topic(Protocol):
    topic_id: bytes

    @property
    def partitions(self) -> Sequence[Part]: ...


class Said(Struct, frozen=True):
    named: list[PartitionId]
    """Partitions, whether or not anything is said of their messages."""
    verdicts: dict[PartitionId, list[Verdict]]
    refused: dict[PartitionId, MillpondError | None]
    """Partitions whose acknowledgements contradict themselves."""

    def __bool__(self) -> bool:
        return bool(self.verdicts or self.refused)


def partition_code(error: MillpondError | None) -> int:
    if error is None:
        return 0
    return error.kafka_code if error.kafka_code in _UNDERSTOOD else NotLeader.kafka_code


def verdicts_of(topics: Iterable[Topic], *, renews: bool) -> Said:
    """A topic may be named more than once."""
    said = Said([], {}, {})
    for topic in topics:
        for part in topic.partitions:
            at = PartitionId(topic.topic_id, part.partition_index)
            said.named.append(at)
            if not part.acknowledgement_batches:
                continue
            try:
                verdicts = said.verdicts.setdefault(at, [])
                for batch in part.acknowledgement_batches:
                    verdicts += _verdicts(batch, renews=renews)
                if len(verdicts) > 1:
                    _check_order(verdicts)
            except InvalidRequest as error:
                said.refused[at] = error
    for at in said.refused:
        said.verdicts.pop(at, None)
    return said


def _verdicts(batch: Batch, *, renews: bool) -> list[Verdict]:
    first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
    count = last - first + 1
    if not 0 <= first <= last or len(types) not in (1, count) or (len(types) > 1 and count > OFFSETS_MAX):
        raise InvalidRequest(
            f"offsets {first} to {last} with {len(types)} types; allowed is one for all of them, or one for each"
        )
    most = _RENEW if renews else _REJECT
    if (wrong := min(types)) < _GAP or (wrong := max(types)) > most:
        raise InvalidRequest(f"acknowledgement type {wrong}; allowed are {_GAP} to {most} here")
    if len(types) == 1:
        return [Verdict(first, last, _OUTCOMES[types[0]])]
    verdicts = []
    at = first
    for kind, run in groupby(types):
        size = sum(1 for _ in run)
        verdicts.append(Verdict(at, at + size - 1, _OUTCOMES[kind]))
        at += size
    return verdicts


def _check_order(verdicts: Sequence[Verdict]) -> None:
    spans = sorted((each.first, each.last) for each in verdicts)
    for (_, last), (first, _) in pairwise(spans):
        if first <= last:
            raise InvalidRequest(f"offset {first} is acknowledged twice in one request; say one thing of it")


def ask_session(node: Node, context: Context, member: Member, epoch: int) -> Session | Trouble:
    if epoch != OPENING:
        return node.share_sessions.go_on(member, epoch)
    node.queues.release_all(*member)  # whoever opens anew has forgotten what it had
    session = node.share_sessions.open(member)
    if isinstance(session, Session):
        context.connection.when_lost(partial(_connection_lost, node, session))
    return session


def _connection_lost(node: Node, session: Session) -> None:
    if node.share_sessions.drop(session):
        close_session(node, session)


def close_session(node: Node, session: Session) -> None:
    node.queues.release_all(*session.member)
