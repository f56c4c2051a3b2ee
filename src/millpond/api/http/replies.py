"""What is answered to a request, and how its head looks on the wire.

Pure. Made by routes, written by connection.py.
"""

from collections.abc import AsyncIterator
from functools import cache
from http import HTTPStatus
from typing import Final, NamedTuple

JSON: Final = "application/json"

Extra = tuple[tuple[str, str], ...]


class Reply(NamedTuple):
    status: int
    content_type: str
    body: bytes = b""
    headers: Extra = ()
    stream: AsyncIterator[bytes] | None = None
    """In the place of a body: comes as it comes, and ends with the connection."""


@cache
def head_of(status: int, content_type: str) -> bytes:
    """As far as it is the same every time."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {content_type}\r\n".encode()
