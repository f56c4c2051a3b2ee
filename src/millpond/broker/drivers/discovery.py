"""Finds the other brokers: asks a name server, or listens to announcements, and asks whoever is there who it is.

Runs core/cluster/discovery.py: while the founders of a new cluster have not all been seen, and later whenever a broker
is not reached where it was. Announces this broker for as long as it runs, where announcements are the way.

Invariant: addresses come from brokers that have proved to know the secret, and a broker that is greeted there proves
itself once more (links.py). Nothing that a stranger sends raises, or is kept.
Driven by app/parts.py (start, founders, close), by links.py (who is not reached), and by its own timer.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from ipaddress import AddressValueError, IPv4Address

from millpond.broker.drivers.links import Identity, RefusedByPeer, Unanswered, meet
from millpond.core.cluster.announcement import Announcement, Ignored, read_announcement
from millpond.core.cluster.discovery import (
    Address,
    Ask,
    Discovery,
    DnsName,
    Effect,
    LookUp,
    MulticastGroup,
    Sighting,
    Verdict,
    shown,
)
from millpond.model.errors import InvalidSetting, MalformedMessage
from millpond.model.ports import Rng
from millpond.net.multicast import ANY_INTERFACE, Multicast, join_group
from millpond.telemetry.events import BROKER_FOUND, FOUNDERS_MISSING, tell

ANNOUNCE_SECONDS = 1.0
TELL_FIRST_SECONDS, TELL_SECONDS = 3.0, 10.0
"""Until the first log line of a broker that waits for founders, and between two more."""


class Finder:
    def __init__(
        self,
        source: DnsName | MulticastGroup,
        identity: Identity,
        peers: Mapping[int, Address | None],
        rng: Rng,
        *,
        on_error: Callable[[BaseException], None],
    ) -> None:
        """`peers` are those that found the cluster, with their addresses where those are known."""
        self._source = source
        self._identity = identity
        self._rng = rng
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        looks_up = isinstance(source, DnsName)
        known = [address for each, address in peers.items() if address is not None and each != identity.node_id]
        self._discovery = Discovery(
            identity.node_id, peers.keys(), looks_up=looks_up, now=self._loop.time(), known=known
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._multicast: Multicast | None = None
        self._at: Address = ("", 0)
        self._tell_at = self._loop.time() + TELL_FIRST_SECONDS
        self._trouble = ""
        """What keeps the source from telling anything, as far as is known."""
        self.ignored: Counter[Ignored] = Counter(dict.fromkeys(Ignored, 0) if not looks_up else {})
        """Datagrams that were none of this cluster's."""

    def address_of(self, broker: int) -> Address | None:
        return self._discovery.found.get(broker)

    def unreached(self, broker: int, address: Address | None) -> None:
        self._discovery.unreached(broker, address, self._loop.time())
        self._changed.set()

    async def start(self, at: Address, *, interface: str) -> None:
        """`at` is where others reach this broker; `interface` the address it listens on."""
        self._at = at
        if isinstance(self._source, MulticastGroup):
            self._multicast = await self._join(self._source, interface)
            self._spawn(self._announce(self._multicast))
        self._spawn(self._run())

    async def wait_founders(self, *, is_new: Callable[[], bool]) -> None:
        """Returns when this broker may begin; `is_new` says whether it has not been part of the cluster yet. Raises
        InvalidSetting where it never will with these settings."""
        while not self.look_around(is_new=is_new()).is_ready:
            await self._wait_change(self._tell_at)

    def look_around(self, *, is_new: bool) -> Verdict:
        """While this broker starts. Tells now and then for whom it waits, and raises where that is in vain."""
        now = self._loop.time()
        verdict = self._discovery.verdict(now, is_new=is_new)
        if verdict.is_hopeless:
            raise InvalidSetting("; ".join(verdict.objections))
        if now >= self._tell_at:
            self._tell_at = now + TELL_SECONDS
            reasons = "; ".join([*verdict.objections, *([self._trouble] if self._trouble else [])])
            missing = ",".join(map(str, verdict.missing)) or "nobody"
            why = reasons or ("nobody else answers there" if verdict.missing else "no majority answers yet")
            tell(FOUNDERS_MISSING, missing=missing, source=str(self._source), why=why)
        return verdict

    def settle(self) -> None:
        """This broker has started: from now on only those are looked for that are not reached."""
        self._discovery.settle()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._multicast is not None:
            self._multicast.close()

    # Running the machine

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)

    async def _run(self) -> None:
        while True:
            for effect in self._discovery.step(self._loop.time()):
                self._spawn(self._perform(effect))
            await self._wait_change(self._discovery.deadline())

    async def _wait_change(self, until: float) -> None:
        """Or until then. Both who wait here look again after any change."""
        changed = self._changed
        try:
            async with asyncio.timeout_at(until if until < float("inf") else None):
                await changed.wait()
        except TimeoutError:
            return
        if self._changed is changed:
            self._changed = asyncio.Event()

    async def _perform(self, effect: Effect) -> None:
        match effect:
            case LookUp():
                await self._look_up()
            case Ask(address):
                await self._ask(address)
        self._changed.set()

    async def _ask(self, address: Address) -> None:
        discovery, loop, before = self._discovery, self._loop, dict(self._discovery.found)
        try:
            said = await meet(self._identity, self._rng, address)
        except RefusedByPeer as refusal:
            if refusal.is_itself:
                discovery.met_itself(address, loop.time())
            else:
                discovery.refused(address, str(refusal), loop.time(), is_taken=refusal.is_taken)
        except (OSError, TimeoutError, Unanswered, MalformedMessage):
            discovery.unanswered(address, loop.time())
        else:
            sighting = Sighting(
                node_id=said.node_id,
                directory_id=said.directory_id,
                founders=tuple(said.founders),
                members=tuple(said.members),
                is_new=said.is_new,
            )
            discovery.met(address, sighting, loop.time())
            if discovery.found.get(said.node_id) != before.get(said.node_id):
                tell(BROKER_FOUND, node_id=said.node_id, address=shown(address), source=str(self._source))

    # A name server

    async def _look_up(self) -> None:
        assert isinstance(self._source, DnsName)
        try:
            found = await self._loop.getaddrinfo(self._source.host, self._source.port, type=socket.SOCK_STREAM)
        except OSError as error:
            self._trouble = f"{self._source.host} is not known to the name server ({error.strerror or error})"
            self._discovery.unlisted()
            return
        self._trouble = ""
        self._discovery.listed([(str(info[4][0]), self._source.port) for info in found], self._loop.time())

    # Announcements

    async def _join(self, group: MulticastGroup, interface: str) -> Multicast:
        try:
            IPv4Address(interface)
        except AddressValueError:
            interface = ANY_INTERFACE
        try:
            return await join_group(group.host, group.port, interface=interface, on_datagram=self._on_datagram)
        except OSError as error:
            raise InvalidSetting(
                f"discovery is {group}, and this machine cannot join that group on the interface of {interface}: "
                f"{error.strerror or error}; listen on an address of a network with multicast, choose another group or "
                "port, or name the addresses in peers"
            ) from error

    async def _announce(self, multicast: Multicast) -> None:
        host, port = self._at
        mine = Announcement(
            cluster_id=self._identity.cluster_id, node_id=self._identity.node_id, host=host, port=port
        ).to_bytes(self._identity.secret)
        while True:
            multicast.send(mine)
            if multicast.trouble is not None:
                self._trouble = f"announcements cannot be sent ({multicast.trouble.strerror})"
            await asyncio.sleep(ANNOUNCE_SECONDS)

    def _on_datagram(self, data: bytes, sender: str) -> None:
        identity = self._identity
        heard = read_announcement(data, cluster_id=identity.cluster_id, secret=identity.secret)
        if isinstance(heard, Ignored):
            self.ignored[heard] += 1
            if heard is Ignored.OTHER_SECRET:
                self._trouble = (
                    f"{sender} announces a broker of cluster {identity.cluster_id!r} with another secret; give all "
                    "brokers of a cluster the same, and each cluster its own cluster-id"
                )
        elif (heard.host, heard.port) != self._at:
            self._discovery.announced((heard.host, heard.port), self._loop.time())
            self._changed.set()
