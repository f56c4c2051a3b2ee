"""Where something listens, as people write it: `host:port`, IPv6 in brackets. Pure."""

from ipaddress import ip_address
from typing import NamedTuple


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """A name other than `localhost` is not: what it stands for can change."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_wildcard(self) -> bool:
        try:
            return ip_address(self.host).is_unspecified
        except ValueError:
            return False
