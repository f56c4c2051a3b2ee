"""What a handler is told besides the request itself.

Made by dispatch.py for each request.
"""

from typing import NamedTuple


class Context(NamedTuple):
    version: int
    client_id: str | None
    host: str
    """The peer's address."""
