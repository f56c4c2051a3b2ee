"""What writers of states were told, key by key; and the named promises that hold whatever befell the brokers.

    NothingLost        what was acknowledged in an older epoch is in every later load; and in the same one, if it was
                       acknowledged before the load began
    NothingTwice       no load brings a document twice
    OneLine            a load brings what any load before it brought, in the same order, and more behind it
    NoHoles            of the documents of one session, a load brings the first few
    FencedStaysFenced  nothing is acknowledged that a newer writer did not see when it loaded

Driven by states_world.py.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.history import Violation


class Document(NamedTuple):
    epoch: int
    session: int
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.session}.{self.number}"


class Loaded(NamedTuple):
    epoch: int
    documents: tuple[Document, ...]
    acknowledged_before: int


@dataclass
class StateHistory:
    """Of one key."""

    acknowledged: list[Document] = field(default_factory=list)
    loads: list[Loaded] = field(default_factory=list)
    fenced: int = 0
    unavailable: int = 0

    def note_acknowledged(self, document: Document) -> None:
        self.acknowledged.append(document)
        for load in self.loads:
            if load.epoch > document.epoch and document not in load.documents:
                raise Violation(f"FencedStaysFenced: {document} was acknowledged, and epoch {load.epoch} lacks it")

    def note_loaded(self, epoch: int, documents: list[Document], *, acknowledged_before: int) -> None:
        load = Loaded(epoch, tuple(documents), acknowledged_before)
        if len(set(documents)) != len(documents):
            raise Violation(f"NothingTwice: epoch {epoch} loads {_text(documents)}")
        for place, document in enumerate(self.acknowledged):
            is_due = document.epoch < epoch or (document.epoch == epoch and place < acknowledged_before)
            if is_due and document not in documents:
                raise Violation(f"NothingLost: epoch {epoch} lacks {document}: {_text(documents)}")
        for other in self.loads:
            first, second = sorted((other, load), key=lambda each: (each.epoch, each is load))
            if second.documents[: len(first.documents)] != first.documents:
                raise Violation(f"OneLine: {_text(first.documents)}, and then {_text(second.documents)}")
        _check_holes(documents)
        self.loads.append(load)


def _check_holes(documents: list[Document]) -> None:
    seen: dict[tuple[int, int], int] = {}
    for epoch, session, number in documents:
        if number != seen.get((epoch, session), 0) + 1:
            raise Violation(f"NoHoles: {_text(documents)}")
        seen[epoch, session] = number


def _text(documents: tuple[Document, ...] | list[Document]) -> str:
    return " ".join(map(str, documents)) or "nothing"
