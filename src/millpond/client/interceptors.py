"""What other code sees, and may change, of messages on their way: stamps, traces, counts, checks.

    class Stamp:
        def on_send(self, message: Outgoing) -> Outgoing:
            return message._replace(headers=(*message.headers, ("sent-by", b"till 3")))

An interceptor has one or more of the methods below. It is given as an object, or by the name of an entry point of the
group `millpond.interceptors`, which is something that makes one.

    on_send(Outgoing) -> Outgoing        before a partition is chosen
    on_acknowledged(RecordMetadata)      it is kept
    on_failed(Outgoing, MillpondError)   it was taken, and is not kept, or nobody can say
    on_receive(Message) -> Message       before the application has it
    on_commit(offsets by partition)      the group goes on from there

Invariant: they are called in the order they were given. One that raises in `on_send` or `on_receive` raises to the
application, and the message is neither sent nor passed over; where a message is, none can change.
Pure. Driven by producer.py and consumer.py, which do without it where none is given.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Final, NamedTuple

from millpond.client.messages import Message, RecordMetadata
from millpond.model.errors import InvalidSetting, MillpondError, WrongUse
from millpond.model.ids import TopicPartition
from millpond.protocol.records import Headers

ENTRY_POINTS: Final = "millpond.interceptors"
METHODS: Final = ("on_send", "on_acknowledged", "on_failed", "on_receive", "on_commit")


class Outgoing(NamedTuple):
    """A message that is being sent."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    """None where a partitioner chooses."""
    timestamp: int | None = None
    """None for now."""


class Interceptors:
    def __init__(self, given: Sequence[object]) -> None:
        """Objects, or names of entry points."""
        self._methods: dict[str, list[Callable[..., Any]]] = {name: [] for name in METHODS}
        for each in given:
            self._add(named(each) if isinstance(each, str) else each)

    def _add(self, interceptor: object) -> None:
        found = [name for name in METHODS if callable(getattr(interceptor, name, None))]
        if not found:
            raise InvalidSetting(
                f"interceptors has {type(interceptor).__name__}, which has none of the methods {', '.join(METHODS)}"
            )
        for name in found:
            self._methods[name].append(getattr(interceptor, name))

    @property
    def see_sends(self) -> bool:
        return any(self._methods[name] for name in ("on_send", "on_acknowledged", "on_failed"))

    @property
    def see_receives(self) -> bool:
        return bool(self._methods["on_receive"])

    def send(self, message: Outgoing) -> Outgoing:
        for call in self._methods["on_send"]:
            message = call(message)
            if not isinstance(message, Outgoing):
                raise WrongUse(f"on_send returned {type(message).__name__}; it returns the message, changed or not")
        return message

    def acknowledged(self, where: RecordMetadata) -> None:
        for call in self._methods["on_acknowledged"]:
            call(where)

    def failed(self, message: Outgoing, error: MillpondError) -> None:
        for call in self._methods["on_failed"]:
            call(message, error)

    def receive(self, message: Message) -> Message:
        for call in self._methods["on_receive"]:
            returned = call(message)
            if not isinstance(returned, Message) or (returned.at, returned.offset) != (message.at, message.offset):
                raise WrongUse("on_receive returns the message, with the topic, partition and offset it had")
            message = returned
        return message

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        for call in self._methods["on_commit"]:
            call(offsets)


def named(name: str) -> object:
    """One that an installed package offers, made."""
    offered = {each.name: each for each in entry_points(group=ENTRY_POINTS)}
    if name not in offered:
        raise InvalidSetting(
            f"interceptors has {name!r}, and no installed package offers it (entry points {ENTRY_POINTS}); there are: "
            f"{', '.join(sorted(offered)) or 'none'}. Correct the name, or pass an object"
        )
    made: object = offered[name].load()()
    return made
