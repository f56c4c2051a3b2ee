"""What a request about metadata comes to: commands for the log, and an answer for each thing that was asked.

Invariant: the commands of one decision apply, in order, to the image it was made on. Answers are in the order of the
request and hold only once the commands are kept. Pure data. Made by controller.py, alterations.py and elections.py.
"""

from typing import Generic, TypeVar

from millpond.core.metadata.commands import Command
from millpond.model.errors import RequestError
from millpond.model.values import dataclass

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Refused:
    """`subject` is what was asked for, in words; `error` says why not, and its code on every front door."""

    subject: str
    error: RequestError


@dataclass(frozen=True, slots=True)
class Decision(Generic[Answer]):
    commands: tuple[Command, ...]
    answers: tuple[Answer | Refused, ...]
