"""Hosts on a switch, each in a network namespace of its own; what one says to another can be dropped or slowed down.

    clients 10.0.0.100 -- switch --+-- host 1, 10.0.0.1
                                   +-- host 2, 10.0.0.2 ...

A way is a pair of hosts, from whom to whom; a cable cut in both directions is two ways. Dropped packets are dropped
where they arrive, silently (nft). Without nft they are not sent at all (blackhole routes), and none can be lost by
chance.

Invariant: a way is open, and quick, unless it was last said to be otherwise.
Only in a private world: there the names are free, and what is built ends with this process. Driven by `make chaos`.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from tests.machine import private_world
from tests.machine.programs import missing, run

Way = tuple[int, int]
CLIENTS = 0
"""The number of this process among the hosts."""
LOST_PERCENT = 20
_SLOWNESS = {
    "netem": ("delay", "60ms", "40ms", "loss", "2%"),
    "tbf": ("rate", "600kbit", "burst", "8kb", "latency", "300ms"),
}
"""What `tc` may have, the better one first."""


class Network:
    def __init__(self, hosts: Sequence[int]) -> None:
        """Raises RuntimeError where the kernel does not have what it takes."""
        self._hosts = [CLIENTS, *hosts]
        self._cut: frozenset[Way] = frozenset()
        self._lossy: frozenset[Way] = frozenset()
        run("ip", "link", "add", "switch", "type", "bridge")
        run("ip", "address", "add", f"{self.address(CLIENTS)}/24", "dev", "switch")
        run("ip", "link", "set", "switch", "up")
        for host in hosts:
            self._plug_in(host)
        self.has_nft = self._try_nft()
        self.slows_by = next((each for each in _SLOWNESS if self._try_slowing(hosts[0], each)), None)

    @staticmethod
    def _plug_in(host: int) -> None:
        name = _name(host)
        run("ip", "netns", "add", name)
        run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", f"to-{name}", "master", "switch", "up")
        run("ip", "-n", name, "address", "add", f"{Network.address(host)}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")

    @staticmethod
    def address(host: int) -> str:
        return f"10.0.0.{100 if host == CLIENTS else host}"

    @staticmethod
    def on(host: int) -> tuple[str, ...]:
        """What goes before a command that is to run there."""
        return () if host == CLIENTS else ("nsenter", f"--net={Network.namespace(host)}")

    @staticmethod
    def namespace(host: int) -> str:
        return f"/run/netns/{_name(host)}"

    # Ways

    def drop(self, cut: Iterable[Way], *, lossy: Iterable[Way] = ()) -> None:
        """From now on these, and no others."""
        before_cut, before_lossy = self._cut, self._lossy
        self._cut, self._lossy = frozenset(cut), frozenset(lossy)
        assert self.has_nft or not self._lossy, "nothing here can lose packets by chance"
        if self.has_nft:
            for host in {to for _, to in before_cut | before_lossy | self._cut | self._lossy}:
                self._filter(host)
        else:
            for way in before_cut - self._cut:
                self._route("del", way)
            for way in self._cut - before_cut:
                self._route("add", way)

    def _filter(self, host: int) -> None:
        rules = [f"ip saddr {self.address(source)} drop" for source, to in self._cut if to == host]
        rules += [
            f"ip saddr {self.address(source)} numgen random mod 100 < {LOST_PERCENT} drop"
            for source, to in self._lossy
            if to == host
        ]
        chain = "\n".join(["type filter hook input priority 0", *rules])
        anew = f"table ip cuts\ndelete table ip cuts\ntable ip cuts {{\nchain heard {{\n{chain}\n}}\n}}\n"
        run(*self.on(host), "nft", "-f", "-", told=anew)

    def _route(self, change: str, way: Way) -> None:
        source, to = way
        run(*self.on(source), "ip", "route", change, "blackhole", f"{self.address(to)}/32")

    def _try_nft(self) -> bool:
        if missing("nft"):
            return False
        self.has_nft = True
        try:
            self.drop(self.around(self._hosts[1]), lossy=self.around(self._hosts[1]))
            self.drop(())
        except RuntimeError:
            return False
        return True

    def around(self, host: int, *, others: Collection[int] | None = None) -> list[Way]:
        """All ways from and to it, or those between it and some."""
        ways = [(host, other) for other in self._hosts if other != host and (others is None or other in others)]
        return ways + [(other, host) for host, other in ways]

    # Speed

    def slow_down(self, host: int) -> None:
        assert self.slows_by is not None
        for where in self._ends(host):
            run("tc", *where, "root", self.slows_by, *_SLOWNESS[self.slows_by])

    def speed_up(self, host: int) -> None:
        for where in self._ends(host):
            run("tc", *(each.replace("replace", "del") for each in where), "root")

    @staticmethod
    def _ends(host: int) -> list[tuple[str, ...]]:
        name = _name(host)
        return [("qdisc", "replace", "dev", f"to-{name}"), ("-n", name, "qdisc", "replace", "dev", "eth0")]

    def _try_slowing(self, host: int, kind: str) -> bool:
        if missing("tc"):
            return False
        self.slows_by = kind
        try:
            self.slow_down(host)
        except RuntimeError:
            return False
        finally:
            with suppress(RuntimeError):
                self.speed_up(host)
        return True


def private_network(hosts: Sequence[int]) -> Network | str:
    """In a world of its own, which this process enters for good; or why this machine does not permit it."""
    try:
        why_not = private_world.enter()
        return Network(hosts) if why_not is None else why_not
    except RuntimeError as error:
        return str(error)


def _name(host: int) -> str:
    return f"host-{host}"
