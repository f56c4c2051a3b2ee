"""Changes and snapshots of the metadata as bytes: what an entry of the quorum's log holds, and what replaces many.

    change     one line {"base":41,"by":2,"id":"<32 hex digits>"}, then one line for each command (encoding.py)
    snapshot   one line {"data_index":57,"image_version":123,"version":1}, then one line for each command

A command's bytes are ASCII without line feeds, so lines need no lengths. What is cut short or not whole never gets
here: entries and snapshots are checksummed by whoever keeps them.

Invariant: `base` is the index of the change before it, the one whose image these commands were decided on. So a log of
changes is a chain, and whoever applies one sees at once where it is not.
Pure. Driven by broker/drivers/quorum.py.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from millpond.core.metadata.commands import Command
from millpond.core.metadata.encoding import decode, encode
from millpond.core.metadata.image import Image, rebuild, snapshot
from millpond.model.errors import UnreadableCommand
from millpond.model.values import dataclass

CHANGE_ID_BYTES: Final = 16
_SNAPSHOT_VERSION: Final = 1
_INT64: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    base: int
    """Index of the change it was decided on; 0 for the very first."""
    by: int
    """The broker that decided."""
    change_id: bytes
    """Drawn by that broker, so that it knows its own change again, however it came into the log."""
    commands: tuple[Command, ...]


def encode_change(change: Change) -> bytes:
    head = {"base": change.base, "by": change.by, "id": change.change_id.hex()}
    return b"\n".join((_line(head), *map(encode, change.commands)))


def decode_change(content: bytes) -> Change:
    head, *lines = content.split(b"\n")
    fields = _fields(head, ("base", "by", "id"))
    try:
        change_id = bytes.fromhex(fields["id"]) if isinstance(fields["id"], str) else b""
    except ValueError:
        change_id = b""
    if len(change_id) != CHANGE_ID_BYTES:
        _refuse(f"id is not {CHANGE_ID_BYTES} bytes in hex")
    return Change(
        base=_number(fields, "base"),
        by=_number(fields, "by"),
        change_id=change_id,
        commands=tuple(map(decode, lines)),
    )


def encode_image(image: Image, *, data_index: int) -> bytes:
    head = {"data_index": data_index, "image_version": image.version, "version": _SNAPSHOT_VERSION}
    return b"\n".join((_line(head), *map(encode, snapshot(image))))


def decode_image(content: bytes) -> tuple[Image, int]:
    """The image, and the index of the last change in it."""
    head, *lines = content.split(b"\n")
    fields = _fields(head, ("data_index", "image_version", "version"))
    if fields["version"] != _SNAPSHOT_VERSION:
        _refuse(f"a snapshot of version {str(fields['version'])[:20]}; a newer Millpond wrote it: start that one")
    image = rebuild(map(decode, lines), version=_number(fields, "image_version"))
    return image, _number(fields, "data_index")


def _line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode("ascii")


def _fields(line: bytes, names: Sequence[str]) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or sorted(fields) != sorted(names):
        _refuse(f"its first line does not say {', '.join(names)}")
    return fields


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields[name]
    if type(value) is not int or not 0 <= value <= _INT64:
        _refuse(f"{name} is {str(value)[:40]}, not a whole number from 0 to {_INT64}")
    return value


def _refuse(what: str) -> NoReturn:
    raise UnreadableCommand(f"a change of the metadata: {what}; restore the log from a replica or backup")
