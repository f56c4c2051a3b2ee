"""Requests that are none: unknown APIs and versions, headers that end early, clients that say who they are."""

import struct

from millpond.protocol.messages.api_versions import ApiVersionsRequest
from tests.interop.beside_kafka.sides import CLOSED, Side

API_VERSIONS, HIGHEST = 18, 32_767


def raw(side: Side, label: str, content: bytes) -> None:
    """The frame's first bytes, or that there was none."""
    peer = side.peer(label)
    peer.send_bytes(struct.pack("!i", len(content)) + content)
    try:
        frame = bytes(peer.receive_frame())
        side.write(label, frame[:6].hex())
    except (AssertionError, OSError):
        side.write(label, CLOSED)


def header(api: int, version: int, rest: bytes = b"") -> bytes:
    return struct.pack("!hhi", api, version, 7) + struct.pack("!h", 2) + b"me" + rest


def frames(side: Side) -> None:
    for api in (-1, 999, 4, 58):
        raw(side, f"unknown api {api}", header(api, 0))
    for api, version in ((3, 99), (3, -1), (0, 99), (1, 3), (18, -1), (11, 50), (2, 0), (0, 2), (22, 99)):
        raw(side, f"api {api} in version {version}", header(api, version))
    raw(side, "no body", header(3, 4))
    raw(side, "half a header", b"\0\x03\0")
    raw(side, "empty", b"")
    raw(side, "negative client id", struct.pack("!hhih", 3, 1, 7, -5))
    raw(side, "bytes behind the body", header(18, 0, b"more"))
    raw(side, "a count that is too large", header(3, 1, struct.pack("!i", 2**30)))
    raw(side, "a negative count", header(3, 1, struct.pack("!i", -7)))
    for version in (0, 1, 2, 3, 4):
        answer = side.ask("", ApiVersionsRequest(client_software_name="a", client_software_version="1"), version)
        side.write(f"versions in {version}", "closed" if answer is None else answer.error_code)
    for label, name, number in (("no name", "", "1"), ("bad name", "-", "1"), ("bad version", "a", "one two")):
        request = ApiVersionsRequest(client_software_name=name, client_software_version=number)
        answer = side.ask("", request, 3)
        side.write(f"client of {label}", "closed" if answer is None else (answer.error_code, len(answer.api_keys) > 0))
    raw(side, "versions, far too new", header(API_VERSIONS, HIGHEST, b"\0"))


SCENES = {"frames": frames}
