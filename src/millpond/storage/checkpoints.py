"""Small documents that change as a whole: written beside, synced, renamed over, and the directory synced.

    line 1   millpond <version> <CRC-32C of line 2, eight hex digits>
    line 2   JSON

Invariant: after a power cut a reader finds the old document or the new one, whole, or says that there is none.
Blocks on the disk. Driven by log.py, recovery.py and the drivers of the broker.
"""

import json
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

from millpond.model.ports import Buffer, Filesystem
from millpond.storage.names import UNFINISHED

_VERSION = 1


def make_directory(filesystem: Filesystem, path: str) -> None:
    """Makes a directory where there is none, and those above it; all their names are durable when it returns."""
    if filesystem.exists(path):
        return
    parent, _, _ = path.rpartition("/")
    if parent:
        make_directory(filesystem, parent)
    filesystem.make_directory(path)
    filesystem.sync_directory(parent or ".")


def write_document(filesystem: Filesystem, directory: str, name: str, content: object) -> None:
    """Durable when it returns."""
    replace_file(filesystem, directory, name, _chunks(content))


def begin_document(filesystem: Filesystem, directory: str, name: str, content: object) -> None:
    """Where there is none, or none that counts. Waits for nothing, so a power cut may leave any part of it."""
    file = filesystem.open(f"{directory}/{name}", create=True)
    try:
        file.truncate(0)
        file.write(0, _chunks(content))
    finally:
        file.close()


def _chunks(content: object) -> tuple[bytes, bytes, bytes]:
    body = json.dumps(content, separators=(",", ":")).encode()
    return f"millpond {_VERSION} {crc32c(body):08x}\n".encode(), body, b"\n"


def replace_file(filesystem: Filesystem, directory: str, name: str, chunks: Sequence[Buffer]) -> None:
    """Any content, as a whole; durable when it returns."""
    unfinished = f"{directory}/{name}{UNFINISHED}"
    file = filesystem.open(unfinished, create=True)
    try:
        file.truncate(0)
        file.write(0, chunks)
        file.sync()
    finally:
        file.close()
    filesystem.rename(unfinished, f"{directory}/{name}")
    filesystem.sync_directory(directory)


def read_document(filesystem: Filesystem, directory: str, name: str) -> Any | None:  # noqa: ANN401 - JSON is any
    """None where there is no document, or where its bytes are not those that were written."""
    path = f"{directory}/{name}"
    if not filesystem.exists(path):
        return None
    file = filesystem.open(path)
    try:
        head, _, body = file.read(0, file.size()).rstrip(b"\n").partition(b"\n")
    finally:
        file.close()
    if head != f"millpond {_VERSION} {crc32c(body):08x}".encode():
        return None
    return json.loads(body)
