"""This process's input and output as bytes, without anything else having to wait for them.

Invariant: while nothing comes in, or nobody takes what goes out, the loop runs on: messages are sent, groups hear of
their member, and an interrupt is heard at once. Files, which are always ready, are read and written directly.
Driven by produce and consume.
"""

import asyncio
import os
import select
import sys
from collections.abc import AsyncIterator
from typing import Final

from millpond.cli.showing import OutputClosed
from millpond.model.errors import InvalidSetting
from millpond.model.limits import KIB, MIB

READ_BYTES: Final = 256 * KIB
LINE_BYTES_MAX: Final = 64 * MIB
WRITE_BYTES: Final = 4 * KIB
"""A pipe that is ready takes so many without blocking."""


async def lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """As they come, without their ends; what comes after the last end is a line as well."""
    rest = bytearray()
    while data := await _read(descriptor):
        rest += data
        *whole, left = rest.split(b"\n") if b"\n" in data else (rest,)
        if len(left) > LINE_BYTES_MAX:
            raise InvalidSetting(f"a line is longer than {LINE_BYTES_MAX} bytes; end lines with a line feed")
        rest = left
        if whole:
            yield list(map(bytes, whole))
    if rest:
        yield [bytes(rest)]


async def _read(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, _settle, ready)
    except PermissionError:  # a file, which is always ready
        await asyncio.sleep(0)
    else:
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
    return os.read(descriptor, READ_BYTES)


async def write(data: bytes) -> None:
    """To stdout, at once."""
    try:
        descriptor = sys.stdout.fileno()
    except OSError:  # somebody in this process reads it
        sys.stdout.buffer.write(data)
        return
    view = memoryview(data)
    while view:
        await _writable(descriptor)
        try:
            view = view[os.write(descriptor, view[:WRITE_BYTES]) :]
        except BrokenPipeError:
            raise OutputClosed from None


async def _writable(descriptor: int) -> None:
    if select.select([], [descriptor], [], 0)[1]:
        return
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(descriptor, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


def _settle(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
