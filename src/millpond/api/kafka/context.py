"""What a handler is told besides the request itself.

Made by dispatch.py for each request.
"""

from collections.abc import Callable
from typing import NamedTuple

from millpond.broker.drivers.doorkeeper import Session


class Context(NamedTuple):
    version: int
    client_id: str | None
    host: str
    """The peer's address."""
    close: Callable[[], None]
    """Ends the connection, once what was asked before is answered."""
    answer_alone: Callable[[], None]
    """Said by a handler whose answer may be large: nothing more is taken from the connection until it is out."""
    when_lost: Callable[[Callable[[], object]], None]
    """Has something done once the connection is gone."""
    session: Session | None = None
    """Of another broker; clients have none."""

    @property
    def broker(self) -> int | None:
        """The broker of this cluster that the connection has proved to be; None for clients, whatever they claim."""
        return None if self.session is None else self.session.broker
