"""Where the other brokers of a cluster are, and whether those who found it have seen each other.

Who founds a cluster is never discovered: the settings name the founders' node ids, the same on each. A source (a name
server, or announcements on the network) gives addresses at which brokers may be; whoever answers there is asked, over
the brokers' own handshake, who it is. That is a `Sighting`.

Invariant: a broker that is new begins only once every founder was seen, new as well and with the same list of founders,
and nobody contradicted; or once it was seen that the cluster is there, with this broker in it. One that has been part
of the cluster before waits for nobody. What is kept is bounded, whatever a source says.
Pure: the caller passes `now` and performs the effects. Driven by broker/drivers/discovery.py.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

LOOK_SECONDS: Final = 1.0
"""Between two looks, and between two questions to one address, while somebody is looked for."""
ANNOUNCED_SECONDS_MAX: Final = 10.0
"""An address that was not announced for so long is forgotten."""
CANDIDATES_MAX: Final = 256
ASKS_MAX: Final = 16
"""Questions under way at a time."""

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class DnsName:
    """Every address behind the name is one of a broker, all on the same port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"dns:{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class MulticastGroup:
    """Brokers announce themselves to this group, one datagram each now and then (announcement.py)."""

    host: str = "239.255.90.92"
    port: int = 9092

    def __str__(self) -> str:
        return f"multicast:{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What a broker that has proved to know the secret said of itself."""

    node_id: int
    directory_id: bytes
    founders: tuple[int, ...]
    """As its settings name them, in order."""
    members: tuple[int, ...]
    """Of the quorum, as far as it knows."""
    is_new: bool
    """It has not been part of the cluster yet."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask the name server, and report `listed` or nothing."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Whoever is there, and report `met`, `met_itself`, `refused` or `unanswered`."""

    address: Address


Effect = LookUp | Ask


@dataclass(frozen=True, slots=True)
class Verdict:
    is_ready: bool
    missing: tuple[int, ...] = ()
    """Founders that were not seen yet."""
    objections: tuple[str, ...] = ()
    """Why not, where somebody answered; each says what to do."""
    is_hopeless: bool = False
    """So many object that waiting helps nobody."""


@dataclass(slots=True)
class _Candidate:
    """An address at which a broker may be."""

    ask_at: float
    heard_at: float = math.inf
    """When it was last announced; one that a name server listed stays until it lists it no more."""
    is_asked: bool = False
    sighting: Sighting | None = None
    refusal: str | None = None


class Discovery:
    def __init__(self, node_id: int, founders: Collection[int], *, looks_up: bool, now: float) -> None:
        self._node_id = node_id
        self._founders = tuple(sorted(founders))
        self._looks_up = looks_up
        self._look_at = now
        self._candidates: dict[Address, _Candidate] = {}
        self._taken: str | None = None
        self._is_settled = False
        self._missing: set[int] = set()
        """Brokers that could not be reached where they were thought to be."""
        self.found: dict[int, Address] = {}

    # What a source says

    def listed(self, addresses: Iterable[Address], now: float) -> None:
        """All there are."""
        wanted = sorted(set(addresses))[:CANDIDATES_MAX]
        self._candidates = {each: self._candidates.get(each) or _Candidate(ask_at=now) for each in wanted}

    def announced(self, address: Address, now: float) -> None:
        candidate = self._candidates.get(address)
        if candidate is not None:
            candidate.heard_at = now
        elif len(self._candidates) < CANDIDATES_MAX:
            self._candidates[address] = _Candidate(ask_at=now, heard_at=now)

    # What asking came to

    def met(self, address: Address, sighting: Sighting, now: float) -> None:
        self._answered(address, now, sighting=sighting)
        broker, known = sighting.node_id, self.found.get(sighting.node_id)
        is_there = known is not None and self._sighted_at(known) == broker
        if broker in self._missing or not is_there:
            self.found[broker] = address
            self._missing.discard(broker)

    def met_itself(self, address: Address, now: float) -> None:
        self._answered(address, now)
        if (candidate := self._candidates.get(address)) is not None:
            candidate.ask_at = math.inf

    def refused(self, address: Address, why: str, now: float, *, is_taken: bool = False) -> None:
        """`is_taken` where another broker has this one's node id: going on would do harm."""
        refusal = f"{shown(address)}: {why}"
        self._answered(address, now, refusal=refusal)
        if is_taken:
            self._taken = refusal

    def unanswered(self, address: Address, now: float) -> None:
        self._answered(address, now)

    def _answered(
        self, address: Address, now: float, *, sighting: Sighting | None = None, refusal: str | None = None
    ) -> None:
        candidate = self._candidates.get(address)
        if candidate is not None:  # else no longer listed
            candidate.is_asked = False
            candidate.ask_at = now + LOOK_SECONDS
            candidate.sighting, candidate.refusal = sighting, refusal

    def _sighted_at(self, address: Address) -> int | None:
        candidate = self._candidates.get(address)
        return candidate.sighting.node_id if candidate is not None and candidate.sighting is not None else None

    # What connections say

    def unreached(self, broker: int, address: Address | None) -> None:
        """It does not answer there, or another does. If it has been found elsewhere since, that is old news."""
        known = self.found.get(broker)
        if known in (None, address):
            self.found.pop(broker, None)
            self._missing.add(broker)

    # What to do next

    def settle(self) -> None:
        """The founders have been seen, or need not be: from now on only those are looked for that are not reached."""
        self._is_settled = True

    @property
    def _is_looking(self) -> bool:
        return bool(self._missing) or not self._is_settled

    def _wanted(self) -> Iterator[tuple[Address, _Candidate]]:
        for address, each in self._candidates.items():
            is_known = each.sighting is not None and each.sighting.node_id not in self._missing
            if not each.is_asked and not (self._is_settled and is_known):
                yield address, each

    def step(self, now: float) -> list[Effect]:
        self._forget_silent(now)
        if not self._is_looking:
            return []
        effects: list[Effect] = []
        if self._looks_up and now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            effects.append(LookUp())
        room = ASKS_MAX - sum(each.is_asked for each in self._candidates.values())
        due = [(address, each) for address, each in self._wanted() if now >= each.ask_at]
        for address, candidate in sorted(due, key=lambda pair: pair[1].ask_at)[:room]:
            candidate.is_asked = True
            effects.append(Ask(address))
        return effects

    def deadline(self) -> float:
        """When `step` may have something to do, if nothing happens before."""
        if not self._is_looking:
            return math.inf
        looks = [self._look_at] if self._looks_up else []
        has_room = sum(each.is_asked for each in self._candidates.values()) < ASKS_MAX
        asks = (each.ask_at for _, each in self._wanted()) if has_room else ()
        return min((*looks, *asks), default=math.inf)

    def _forget_silent(self, now: float) -> None:
        silent = [at for at, each in self._candidates.items() if each.heard_at < now - ANNOUNCED_SECONDS_MAX]
        for address in silent:
            del self._candidates[address]

    # Whether to begin

    def verdict(self, *, is_new: bool) -> Verdict:
        """`is_new` where this broker has not been part of the cluster yet."""
        if not is_new or self._node_id not in self._founders:
            return Verdict(is_ready=True)
        seen = {at: each.sighting for at, each in self._candidates.items() if each.sighting is not None}
        if any(self._node_id in each.members for each in seen.values() if not each.is_new):
            return Verdict(is_ready=True)
        missing = tuple(sorted({*self._founders} - {self._node_id} - {each.node_id for each in seen.values()}))
        contradictions = [*self._contradictions(seen), *_twins(seen)]
        refusals = [each.refusal for each in self._candidates.values() if each.refusal is not None]
        spare = len(self._founders) - (len(self._founders) // 2 + 1)
        taken = [] if self._taken is None else [self._taken]
        objections = tuple(dict.fromkeys([*taken, *contradictions, *refusals]))
        return Verdict(
            is_ready=not (missing or contradictions or taken),
            missing=missing,
            objections=objections,
            is_hopeless=bool(taken) or len(objections) > spare,
        )

    def _contradictions(self, seen: dict[Address, Sighting]) -> Iterator[str]:
        for at, other in seen.items():
            if not other.is_new:
                yield (
                    f"the cluster that broker {other.node_id} at {shown(at)} belongs to was founded without broker "
                    f"{self._node_id}, and consists of {_names(other.members)}; to join it, name those in peers, and "
                    f"not {self._node_id}"
                )
            elif other.node_id in {*self._founders, *other.founders} and other.founders != self._founders:
                yield (
                    f"peers of broker {other.node_id} at {shown(at)} names {_names(other.founders)}, and here "
                    f"{_names(self._founders)}; give all brokers of a cluster the same"
                )


def _twins(seen: dict[Address, Sighting]) -> Iterator[str]:
    first: dict[int, tuple[Address, bytes]] = {}
    for at, each in seen.items():
        other, directory = first.setdefault(each.node_id, (at, each.directory_id))
        if directory != each.directory_id:
            yield (
                f"node id {each.node_id} is used by two brokers, at {shown(other)} and at {shown(at)}; give each "
                "broker of a cluster its own node-id"
            )


def shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _names(nodes: Collection[int]) -> str:
    return ",".join(map(str, nodes))
