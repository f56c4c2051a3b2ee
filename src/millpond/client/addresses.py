"""Brokers as people name them: `host:port`, several with commas between, IPv6 in brackets.

Pure.
"""

from collections.abc import Sequence
from typing import Final

from millpond.model.addresses import Address
from millpond.model.errors import InvalidSetting

PORT_DEFAULT: Final = 9092


def parse_addresses(text: str | Sequence[str]) -> list[Address]:
    parts = text.split(",") if isinstance(text, str) else list(text)
    addresses = [_parse(part.strip()) for part in parts if part.strip()]
    if not addresses:
        raise InvalidSetting(f"bootstrap is {text!r}; it names at least one broker, such as localhost:{PORT_DEFAULT}")
    return addresses


def _parse(text: str) -> Address:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    number = int(port) if port.isdecimal() else PORT_DEFAULT if not port else 0
    if not host or not 0 < number < 65536:
        raise InvalidSetting(f"bootstrap names {text!r}; a broker is host:port, such as localhost:{PORT_DEFAULT}")
    return Address(host, number)
