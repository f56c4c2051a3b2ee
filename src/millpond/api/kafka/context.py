"""What a handler is told besides the request itself.

Made by dispatch.py for each request.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from millpond.broker.drivers.doorkeeper import Session


class Connection(Protocol):
    """As far as it concerns those who handle its requests."""

    peer: tuple[str, int]
    extra: Any
    """A `Session`, once another broker has greeted; clients have none."""

    def close(self) -> None:
        """Ends it, once what was asked before is answered."""

    def answer_alone(self) -> None:
        """Said by a handler whose answer may be large: nothing more is taken from the connection until it is out."""

    def when_lost(self, then: Callable[[], object]) -> None:
        """Has something done once the connection is gone."""


class Context(NamedTuple):
    version: int
    client_id: str | None
    connection: Connection

    @property
    def host(self) -> str:
        """The peer's address."""
        return self.connection.peer[0]

    @property
    def session(self) -> Session | None:
        """Of another broker."""
        session: Session | None = self.connection.extra
        return session

    @property
    def broker(self) -> int | None:
        """The broker of this cluster that the connection has proved to be; None for clients, whatever they claim."""
        session = self.session
        return None if session is None else session.broker
