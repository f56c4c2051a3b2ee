"""Conversations with a group, written down as text: who said what, and what came back, in order.

    > ana joins
      ana <- MEMBER_ID_REQUIRED ana-1
      note MemberJoined ana-1

A client here does what real ones do: it keeps the member id, generation and assignment it was told. Requests that
wait are answered under the name of whoever sent them, whenever that is.
"""

import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from millpond.core.groups.classic import ClassicGroup
from millpond.core.groups.classic_events import (
    ClassicEvent,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    Leaving,
    SyncGroup,
    SyncResult,
    Tick,
)
from millpond.core.groups.effects import Effect, Fact, Noted, Persist, Reply, Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import ClassicGroupRecord, Record
from millpond.core.groups.settings import GroupSettings
from millpond.model.instant import Instant

TRANSCRIPTS = Path(__file__).parent / "transcripts"
WALL_MS = 1_700_000_000_000


def instant(monotonic_ms: int) -> Instant:
    return Instant(monotonic_ms, WALL_MS + monotonic_ms)


class Ids:
    """Member ids that a reader can follow: ana-1, ben-2."""

    def __init__(self) -> None:
        self.given = 0

    def __call__(self, client_id: str) -> str:
        self.given += 1
        return f"{client_id}-{self.given}"


@dataclass
class Client:
    """What a member knows of itself."""

    name: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    leads: tuple[str, ...] = ()
    """The members it has to assign to, where it leads."""


@dataclass
class Conversation:
    settings: GroupSettings = field(default_factory=lambda: GroupSettings(initial_rebalance_delay_ms=0))
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.ids = Ids()
        self.group = ClassicGroup("g", self.settings, self.ids, now=instant(0))
        self.clients: dict[str, Client] = {}
        self.lines: list[str] = []
        self.senders: dict[Token, str] = {}
        self.kept: ClassicGroupRecord | None = None

    # What is said

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def join(self, name: str, **changes: object) -> None:
        client = self.client(name)
        base = JoinGroup(
            token=Token(0),
            protocols=(("range", name.encode()),),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
        )
        self.say(
            f"{name} joins",
            name,
            replace(
                base,
                token=self._token(name),
                member_id=client.member_id,
                instance_id=client.instance_id,
                client_id=name,
                **changes,  # type: ignore[arg-type]
            ),
        )

    def join_fully(self, name: str, **changes: object) -> None:
        """As a client does from version 4 on: asks for an id, and comes back with it."""
        self.join(name, **changes)
        if self.clients[name].member_id and self.clients[name].instance_id is None:
            self.join(name, **changes)

    def sync(self, name: str, **assignments: str) -> None:
        self.sync_in(self.client(name).generation, name, **assignments)

    def sync_in(self, generation: int, name: str, /, **assignments: str) -> None:
        client = self.client(name)
        given = tuple((self.client(key).member_id, value.encode()) for key, value in assignments.items())
        told = f" {assignments}" if assignments else ""
        self.say(
            f"{name} syncs{told}",
            name,
            SyncGroup(
                token=self._token(name),
                member_id=client.member_id,
                instance_id=client.instance_id,
                generation=generation,
                assignments=given,
            ),
        )

    def heartbeat(self, name: str, generation: int | None = None) -> None:
        client = self.client(name)
        said = client.generation if generation is None else generation
        self.say(
            f"{name} heartbeats in {said}",
            name,
            Heartbeat(
                token=self._token(name), member_id=client.member_id, instance_id=client.instance_id, generation=said
            ),
        )

    def leave(self, *names: str) -> None:
        leaving = tuple(
            Leaving(member_id=self.client(name).member_id, instance_id=self.client(name).instance_id) for name in names
        )
        self.say(
            f"{' and '.join(names)} leave{'s' if len(names) == 1 else ''}",
            names[0],
            LeaveGroup(token=self._token(names[0]), members=leaving),
        )

    def wait(self, ms: int) -> None:
        """Time passes, deadline by deadline, as a driver would wait for them."""
        until = self.now_ms + ms
        self.lines.append(f"> {ms} ms pass")
        while (due := self.group.next_deadline) is not None and due <= until:
            self.now_ms = max(due, self.now_ms)
            effects = self.group.step(Tick(), now=instant(self.now_ms))
            if effects:
                self.lines.append(f"  at {self.now_ms} ms")
            self._hear(effects)
        self.now_ms = until

    def restart(self) -> None:
        """The coordinator starts anew from what it kept."""
        assert self.kept is not None
        self.lines.append("> the coordinator restarts")
        self.group = ClassicGroup.restore(self.kept, self.settings, self.ids, now=instant(self.now_ms))

    def say(self, what: str, name: str, event: ClassicEvent) -> None:
        self.lines.append(f"> {what}")
        self._hear(self.group.step(event, now=instant(self.now_ms)))

    # What comes back

    def _token(self, name: str) -> Token:
        token = Token(len(self.senders) + 1)
        self.senders[token] = name
        return token

    def _hear(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(to, result):
                    self._learn(self.client(self.senders[to]), result)
                    self.lines.append(f"  {self.senders[to]} <- {told(result)}")
                case Persist(record):
                    assert isinstance(record, ClassicGroupRecord)
                    self.kept = record
                    self.lines.append(f"  keep {kept(record)}")
                case Noted(fact):
                    self.lines.append(f"  note {noted(fact)}")

    def _learn(self, client: Client, result: object) -> None:
        if isinstance(result, JoinResult) and result.error in {GroupError.NONE, GroupError.MEMBER_ID_REQUIRED}:
            client.member_id = result.member_id
            client.generation = result.generation
            client.leads = tuple(each.member_id for each in result.members)

    def read(self) -> str:
        text, self.lines = "\n".join(self.lines), []
        return text


def told(result: object) -> str:
    match result:
        case JoinResult(error=GroupError.NONE):
            rest = f" of {', '.join(each.member_id for each in result.members)}" if result.members else ""
            skip = ", nothing to assign" if result.skip_assignment else ""
            return f"joined {result.generation} as {result.member_id}, {result.leader} leads{rest}{skip}"
        case JoinResult():
            return f"{result.error.name} {result.member_id}".strip()
        case SyncResult(error=GroupError.NONE):
            return f"assigned {result.assignment.decode()!r}"
        case LeaveResult():
            return ", ".join(
                f"{each.member_id or each.instance_id} {'gone' if not error else error.name}"
                for each, error in result.members
            )
        case SyncResult() | HeartbeatResult():
            return "still a member" if result.error is GroupError.NONE else result.error.name
    raise AssertionError(result)


def kept(record: Record) -> str:
    if isinstance(record, ClassicGroupRecord):
        members = ", ".join(f"{each.member_id}={each.assignment.decode()!r}" for each in record.members)
        return f"generation {record.generation}: {members or 'nobody'}"
    return f"{type(record).__name__} " + " ".join(str(getattr(record, each.name)) for each in fields(record))


def noted(fact: Fact) -> str:
    values = [getattr(fact, each.name) for each in fields(fact) if each.name != "group"]
    return f"{type(fact).__name__} " + " ".join(getattr(each, "name", str(each)) for each in values)


def golden(actual: str, name: str) -> None:
    """Compares with transcripts/<name>.txt; with REWRITE_TRANSCRIPTS set, writes it anew, to be read in the diff."""
    path = TRANSCRIPTS / f"{name}.txt"
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(actual + "\n")
    assert actual + "\n" == path.read_text(), f"{name} went otherwise:\n\n{actual}\n"
