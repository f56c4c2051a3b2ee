"""What users of a queue may rely on, as invariants over everything that publishers and consumers were told.

    NothingPhantom             what is delivered was published, and an offset is always the same message
    NothingAfterAccept         what a consumer was told is accepted is never delivered again
    LeasesDoNotOverlap         who has a message has it alone, for the whole lock duration, by true time
    AttemptsCount              each delivery has a number of its own, higher than those before it, and none is left out
    DeadLettersOnce            a message is in the dead-letter topic once, after the last attempt or a reject, unaltered
    KeysInOrder                of one key one at a time, in the order of offsets; none comes after a later one
    BackoffIsKept              what was given back waits as long as the group says
    EverythingEndsSomewhere    what was acknowledged to its publisher is accepted, dead, or has outlived its time

Times are true ones, whatever the brokers' clocks say. What a broker did in between is known only within bounds: a lease
began between the request and its answer. Pure. Driven by queue_world.py.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from millpond.core.delivery.states import Outcome
from tests.simulation.history import Violation

Place = tuple[int, int]
"""Partition and offset."""
DRIFT = 0.95
"""How much of a lock duration is sure to pass by true time: clocks may run ahead of it."""
NOTICED_SECONDS = 3.0
"""A consumer whose connection ends so soon may have lost its lease already: the broker knows first, and may have closed
it. With a connection that failed, this and the time of a request."""


class Order(IntEnum):
    OFFSET = 0
    KEY = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the group's settings promise."""

    attempts_max: int
    lock_ms: int
    backoff_ms: int
    jitter: float
    order: Order
    clocks_are_steady: bool
    """Nobody's wall clock jumps, and one broker has the queue all the time: a backoff is then known within bounds."""


@dataclass(frozen=True, slots=True)
class Message:
    value: bytes
    key: bytes | None
    expires: bool
    """It has a time to live, so it may never be delivered."""


@dataclass(frozen=True, slots=True)
class Sent:
    partition: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    partition: int
    base_offset: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class FetchBegan:
    session: str


@dataclass(frozen=True, slots=True)
class FetchEnded:
    """With an answer, and no error in it: every message it was to carry is noted as delivered."""

    session: str


@dataclass(frozen=True, slots=True)
class Delivered:
    session: str
    place: Place
    value: bytes
    key: bytes | None
    attempt: int
    asked_at: float
    at: float


@dataclass(frozen=True, slots=True)
class Said:
    session: str
    place: Place
    outcome: Outcome
    at: float


@dataclass(frozen=True, slots=True)
class Heard:
    """That the acknowledgement was taken."""

    session: str
    place: Place
    outcome: Outcome
    said_at: float
    at: float


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """Its name, or how it begins: all sessions of a process that was killed."""

    session: str
    at: float
    """When it was whole for the last time."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One of the dead-letter topic."""

    place: Place
    value: bytes | None
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True)
class InCalm:
    """All there is in the end: the queue's log and its dead letters."""

    log: dict[Place, Message]
    letters: tuple[Letter, ...]


Event = Sent | Acknowledged | FetchBegan | FetchEnded | Delivered | Said | Heard | SessionEnded | InCalm


class QueueHistory:
    """Keeps what was told by message, and holds it against the invariants: some at once, the others in the end."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.counts: Counter[str] = Counter()
        self.sent: dict[bytes, Message] = {}
        self.acknowledged: dict[Place, Message] = {}
        self.deliveries: dict[Place, list[Delivered]] = defaultdict(list)
        self.said: dict[Place, list[Said]] = defaultdict(list)
        self.heard: dict[Place, list[Heard]] = defaultdict(list)
        self.accepted: dict[Place, Heard] = {}
        self.ends: dict[str, float] = {}
        self.lost_fetches = 0
        """Under way, or never answered: each may have carried any message once."""

    def note(self, event: Event) -> None:  # noqa: C901 - one case for each kind
        self.counts[type(event).__name__] += 1
        match event:
            case Sent():
                self.sent |= {each.value: each for each in event.messages}
            case Acknowledged():
                for offset, message in enumerate(event.messages, start=event.base_offset):
                    self.acknowledged[event.partition, offset] = message
            case FetchBegan():
                self.lost_fetches += 1
            case FetchEnded():
                self.lost_fetches -= 1
            case Delivered():
                for check in (nothing_phantom, nothing_after_accept, attempts_count):
                    check(self, event)
                self.deliveries[event.place].append(event)
            case Said():
                self.counts[event.outcome.name] += 1
                self.said[event.place].append(event)
            case Heard():
                self.heard[event.place].append(event)
                if event.outcome is Outcome.ACCEPT:
                    self.accepted[event.place] = event
            case SessionEnded():
                self.ends.setdefault(event.session, event.at)
            case InCalm():
                self.counts["letters"] = len(event.letters)
                for check_all in IN_THE_END:
                    check_all(self, event)

    def end_of(self, session: str) -> float:
        """Of a session, or of its process."""
        return min(self.ends.get(session, 1e9), self.ends.get(session.rsplit("/", 1)[0], 1e9))

    def may_be_done(self, place: Place) -> bool:
        return any(each.outcome in (Outcome.ACCEPT, Outcome.REJECT) for each in self.said[place])

    def unaccounted(self, log: dict[Place, Message], letters: tuple[Letter, ...]) -> list[Place]:
        """What must be delivered yet."""
        dead = {each.place for each in letters}
        return [
            place for place in self.acknowledged if not (self.may_be_done(place) or place in dead or log[place].expires)
        ]


def require(holds: bool, invariant: str, otherwise: str) -> None:
    if not holds:
        raise Violation(f"{invariant}: {otherwise}")


# At once


def nothing_phantom(history: QueueHistory, event: Delivered) -> None:
    message = history.sent.get(event.value)
    require(message is not None, "NothingPhantom", f"nobody published {event}")
    require(message is not None and message.key == event.key, "NothingPhantom", f"another key than {message}: {event}")
    same = all(each.value == event.value for each in history.deliveries[event.place])
    require(same, "NothingPhantom", f"another message at the same offset: {event}")


def nothing_after_accept(history: QueueHistory, event: Delivered) -> None:
    accepted = history.accepted.get(event.place)
    if accepted is not None:
        by = [each.attempt for each in history.deliveries[event.place] if each.session == accepted.session]
        is_later = event.asked_at >= accepted.at or event.attempt > max(by)
        require(not is_later, "NothingAfterAccept", f"{accepted}, then {event}")


def attempts_count(history: QueueHistory, event: Delivered) -> None:
    before = history.deliveries[event.place]
    for each in before:
        require(each.attempt != event.attempt, "AttemptsCount", f"the same number twice: {each}, {event}")
        if each.at <= event.asked_at:
            require(each.attempt < event.attempt, "AttemptsCount", f"{event} after {each}")
    most = history.rules.attempts_max
    require(event.attempt <= most, "AttemptsCount", f"{most} attempts are allowed: {event}")
    possible = len(before) + history.lost_fetches
    require(event.attempt <= 1 + possible, "AttemptsCount", f"handed out at most {possible} times before {event}")


# In the end


def leases_do_not_overlap(history: QueueHistory, calm: InCalm) -> None:
    lock = history.rules.lock_ms / 1000 * DRIFT
    for place, deliveries in history.deliveries.items():
        for first in deliveries:
            until = lock + max(
                first.asked_at,
                *(
                    each.said_at
                    for each in history.heard[place]
                    if each.outcome is Outcome.RENEW and attempt_of(history, each) == (first.session, first.attempt)
                ),
                0.0,
            )
            given_back = min(
                (each.at for each in history.said[place] if is_end(each, first)),
                default=history.end_of(first.session) - NOTICED_SECONDS,
            )
            given_back = min(given_back, history.end_of(first.session) - NOTICED_SECONDS)
            for second in deliveries:
                if second.attempt > first.attempt and second.at <= given_back:
                    require(second.at >= until, "LeasesDoNotOverlap", f"{first} until {until:.3f}, {second}")


def attempt_of(history: QueueHistory, heard: Heard) -> tuple[str, int]:
    """Which of the session's deliveries of the message it was about: the last by then."""
    attempts = [
        each.attempt
        for each in history.deliveries[heard.place]
        if each.session == heard.session and each.at <= heard.said_at
    ]
    return heard.session, max(attempts)


def is_end(said: Said, of: Delivered) -> bool:
    return said.session == of.session and said.outcome is not Outcome.RENEW and said.at >= of.at


def dead_letters_once(history: QueueHistory, calm: InCalm) -> None:
    seen: dict[Place, Letter] = {}
    for letter in calm.letters:
        place, most = letter.place, history.rules.attempts_max
        require(place not in seen, "DeadLettersOnce", f"{letter}, and before it {seen.get(place)}")
        seen[place] = letter
        require(
            place not in history.accepted, "DeadLettersOnce", f"{letter} was accepted: {history.accepted.get(place)}"
        )
        message = calm.log.get(place)
        require(message is not None and message.value == letter.value, "DeadLettersOnce", f"{message} became {letter}")
        rejected = any(each.outcome is Outcome.REJECT for each in history.said[place])
        is_due = letter.attempts == most or (rejected and letter.reason == "rejected") or letter.reason == "expired"
        require(is_due, "DeadLettersOnce", f"too early, or too late: {letter}; {most} attempts are allowed")
        highest = max((each.attempt for each in history.deliveries[place]), default=0)
        require(highest <= letter.attempts, "DeadLettersOnce", f"delivered after it was dead: {letter}")
    for place, heard in history.heard.items():
        if any(each.outcome is Outcome.REJECT for each in heard):
            require(place in seen, "DeadLettersOnce", f"rejected, and nowhere: {heard}")


def keys_in_order(history: QueueHistory, calm: InCalm) -> None:
    if history.rules.order is not Order.KEY:
        return
    dead = {each.place for each in calm.letters}
    by_key: dict[tuple[int, bytes], list[Place]] = defaultdict(list)
    for (partition, offset), message in sorted(calm.log.items()):
        if message.key is not None:
            by_key[partition, message.key].append((partition, offset))
    for places in by_key.values():
        for index, later in enumerate(places):
            if not history.deliveries[later]:
                continue
            shown_at = min(each.at for each in history.deliveries[later])
            for earlier in places[:index]:
                again = [each for each in history.deliveries[earlier] if each.asked_at >= shown_at]
                require(not again, "KeysInOrder", f"{later} at {shown_at:.3f}, and then {again}")
                was_done = any(each.at <= shown_at for each in history.said[earlier] if is_last_word(each))
                was_done = was_done or earlier in dead or calm.log[earlier].expires
                require(was_done, "KeysInOrder", f"{later} at {shown_at:.3f}, and {earlier} was not done")


def is_last_word(said: Said) -> bool:
    return said.outcome in (Outcome.ACCEPT, Outcome.REJECT)


def backoff_is_kept(history: QueueHistory, calm: InCalm) -> None:
    rules = history.rules
    if not rules.backoff_ms or not rules.clocks_are_steady:
        return
    for place, heard in history.heard.items():
        for released in heard:
            if released.outcome is not Outcome.RELEASE:
                continue
            _, attempt = attempt_of(history, released)
            least = (rules.backoff_ms << (attempt - 1)) / 1000 * (1 - rules.jitter) * DRIFT
            for each in history.deliveries[place]:
                if each.attempt > attempt:
                    waited = each.at - released.said_at
                    require(waited >= least, "BackoffIsKept", f"{released}, and {waited:.3f} s later {each}")


def everything_ends_somewhere(history: QueueHistory, calm: InCalm) -> None:
    for place, message in history.acknowledged.items():
        there = calm.log.get(place)
        require(there == message, "EverythingEndsSomewhere", f"{place} was {message}, and is {there}")
    left = history.unaccounted(calm.log, calm.letters)
    require(not left, "EverythingEndsSomewhere", f"neither accepted nor dead: {[(at, calm.log[at]) for at in left]}")


IN_THE_END: tuple[Callable[[QueueHistory, InCalm], None], ...] = (
    leases_do_not_overlap,
    dead_letters_once,
    keys_in_order,
    backoff_is_kept,
    everything_ends_somewhere,
)
