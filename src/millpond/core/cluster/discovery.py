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
from typing import Final

from millpond.model import addresses
from millpond.model.values import dataclass

LOOK_SECONDS: Final = 1.0
LOOK_SECONDS_MAX: Final = 8.0
"""Between two looks, and between two questions to one address, while somebody is looked for: more and more, once this
broker has started."""
WANTED_SECONDS: Final = 10.0
"""Whoever is not reached is looked for as long as somebody tries to reach it, and no longer."""
ANNOUNCED_SECONDS_MAX: Final = 10.0
"""An address that was not announced for so long is forgotten."""
PATIENCE_SECONDS: Final = 3.0
"""How long one that everybody refuses goes on asking: others may come, and one that ends just then seems to refuse."""
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
    """Ask the name server, and report `listed` or `unlisted`."""


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
    def __init__(
        self, node_id: int, founders: Collection[int], *, looks_up: bool, now: float, known: Iterable[Address] = ()
    ) -> None:
        """`known` are addresses that need no source: they are asked like the others."""
        self._node_id = node_id
        self._founders = tuple(sorted(founders))
        self._looks_up = looks_up
        self._is_looking_up = False
        self._began_at = self._look_at = now
        self._look_seconds = LOOK_SECONDS
        self._known = tuple(known)
        self._candidates = {each: _Candidate(ask_at=now) for each in self._known}
        self._taken: str | None = None
        self._is_settled = False
        self._missing: dict[int, float] = {}
        """Brokers that could not be reached where they were thought to be, and when that was tried last."""
        self.found: dict[int, Address] = {}

    # What a source says

    def listed(self, addresses: Iterable[Address], now: float) -> None:
        """All there are."""
        self._is_looking_up = False
        wanted = [*self._known, *sorted({*addresses} - {*self._known})][:CANDIDATES_MAX]
        self._candidates = {each: self._candidates.get(each) or _Candidate(ask_at=now) for each in wanted}

    def unlisted(self) -> None:
        """No answer came, or none that helps: what was listed before may still hold."""
        self._is_looking_up = False

    def announced(self, address: Address, now: float) -> None:
        candidate = self._candidates.get(address)
        if candidate is not None:
            candidate.heard_at = max(candidate.heard_at, now)
        elif len(self._candidates) < CANDIDATES_MAX:
            self._candidates[address] = _Candidate(ask_at=now, heard_at=now)

    # What asking came to

    def met(self, address: Address, sighting: Sighting, now: float) -> None:
        self._answered(address, now, sighting=sighting)
        broker, known = sighting.node_id, self.found.get(sighting.node_id)
        for other in [each for each, at in self.found.items() if at == address and each != broker]:
            del self.found[other]
        if broker in self._missing or known is None or self._sighted_at(known) != broker:
            self.found[broker] = address
            self._missing.pop(broker, None)

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
            candidate.ask_at = now + self._look_seconds
            candidate.sighting, candidate.refusal = sighting, refusal

    def _sighted_at(self, address: Address) -> int | None:
        candidate = self._candidates.get(address)
        return candidate.sighting.node_id if candidate is not None and candidate.sighting is not None else None

    # What connections say

    def unreached(self, broker: int, address: Address | None, now: float) -> None:
        """It does not answer there, or another does. If it has been found elsewhere since, that is old news."""
        if self.found.get(broker) not in (None, address):
            return
        self.found.pop(broker, None)
        if broker not in self._missing:
            self._look_seconds = LOOK_SECONDS
            self._look_at = min(self._look_at, now + LOOK_SECONDS)
        self._missing[broker] = now

    # What to do next

    def settle(self) -> None:
        """This broker has started: from now on only those are looked for that are not reached."""
        self._is_settled = True

    @property
    def _is_looking(self) -> bool:
        return bool(self._missing) or not self._is_settled

    def step(self, now: float) -> list[Effect]:
        self._forget(now)
        if not self._is_looking:
            return []
        effects: list[Effect] = []
        if now >= self._look_at:
            if self._is_settled:
                self._look_seconds = min(2 * self._look_seconds, LOOK_SECONDS_MAX)
            self._look_at = now + self._look_seconds
            if self._looks_up and not self._is_looking_up:
                self._is_looking_up = True
                effects.append(LookUp())
        # All of them, also those that are known: two brokers may have swapped their addresses.
        room = ASKS_MAX - sum(each.is_asked for each in self._candidates.values())
        due = [(each.ask_at, at) for at, each in self._candidates.items() if now >= each.ask_at and not each.is_asked]
        for _, address in sorted(due)[:room]:
            self._candidates[address].is_asked = True
            effects.append(Ask(address))
        return effects

    def deadline(self) -> float:
        """When `step` may have something to do, if nothing happens before."""
        if not self._is_looking:
            return math.inf
        unasked = [each.ask_at for each in self._candidates.values() if not each.is_asked]
        has_room = len(self._candidates) - len(unasked) < ASKS_MAX
        return min([self._look_at, *unasked]) if has_room else self._look_at

    def _forget(self, now: float) -> None:
        """Addresses that are announced no more, and brokers that nobody tries to reach any more."""
        for address in [at for at, each in self._candidates.items() if each.heard_at < now - ANNOUNCED_SECONDS_MAX]:
            del self._candidates[address]
        for broker in [each for each, tried_at in self._missing.items() if tried_at < now - WANTED_SECONDS]:
            del self._missing[broker]

    # Whether to begin

    def verdict(self, now: float, *, is_new: bool) -> Verdict:
        """`is_new` where this broker has not been part of the cluster yet."""
        seen = {at: each.sighting for at, each in self._candidates.items() if each.sighting is not None}
        is_there = any(self._is_ours(each) for each in seen.values())
        founds = is_new and self._node_id in self._founders and not is_there
        missing = tuple(sorted({*self._founders} - {self._node_id} - {each.node_id for each in seen.values()}))
        contradictions = [*self._contradictions(seen), *_twins(seen)] if founds else []
        taken = [] if self._taken is None else [self._taken]
        refusals = [each.refusal for each in self._candidates.values() if each.refusal is not None]
        objections = tuple(dict.fromkeys([*taken, *contradictions, *refusals]))
        is_alone = len(seen) <= len(contradictions) and self._founders != (self._node_id,)
        is_patient = now < self._began_at + PATIENCE_SECONDS
        spare = len(self._founders) - (len(self._founders) // 2 + 1)
        return Verdict(
            is_ready=not founds or not (missing or contradictions or taken),
            missing=missing,
            objections=objections,
            is_hopeless=bool(taken) or (is_alone and not is_patient and len(objections) > spare),
        )

    def _is_ours(self, other: Sighting) -> bool:
        """Whether it belongs to the cluster that this broker helped to found, before it lost its disk, or was slow."""
        return not other.is_new and self._node_id in other.members and other.founders == self._founders

    def _contradictions(self, seen: dict[Address, Sighting]) -> Iterator[str]:
        for at, other in seen.items():
            if not other.is_new and self._node_id not in other.members:
                yield (
                    f"the cluster that broker {other.node_id} at {shown(at)} belongs to was founded without broker "
                    f"{self._node_id}, and consists of {_names(other.members)}; to join it, name those in peers, and "
                    f"not {self._node_id}"
                )
            elif other.founders != self._founders and _founds(other, among=self._founders):
                yield (
                    f"peers of broker {other.node_id} at {shown(at)} names {_names(other.founders)}, and here "
                    f"{_names(self._founders)}; give all brokers of a cluster the same"
                )


def _founds(other: Sighting, *, among: Collection[int]) -> bool:
    """Or has founded: one that is new and only joins may have any list."""
    return not other.is_new or other.node_id in {*among, *other.founders}


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
    return str(addresses.Address(*address))


def _names(nodes: Collection[int]) -> str:
    return ",".join(map(str, nodes))
