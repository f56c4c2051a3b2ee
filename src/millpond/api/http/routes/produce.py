"""POST /produce: one message, or an array of them.

    {"topic": "orders", "key": "table 4", "value": "one coffee"}      {"partition": 2, "offset": 17}

An array is answered with an array, in its order, when all are kept. Where some were refused the answer is a problem,
and its `results` say what became of each. With `delay_ms` or `deliver_at` a message is delivered later, and the place
that is answered is its id until then.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from millpond.api.anywhere import queues
from millpond.api.anywhere.producing import Parcel
from millpond.api.anywhere.refusals import Refusal, code_of, status_of
from millpond.api.anywhere.shipment import Shipment, size_of
from millpond.api.http.connection import Answer, Request
from millpond.api.http.forms import (
    FORMS,
    NOTHING,
    Form,
    NewHeaders,
    Partition,
    Timestamp,
    TopicName,
    bytes_of,
    form_of_body,
    headers_of,
)
from millpond.api.http.problems import Blames, problem, reply_to
from millpond.api.http.queue_messages import Delay, Moment, moment_of
from millpond.api.http.replies import JSON, Reply
from millpond.api.http.routing import Route, decoded
from millpond.api.http.services import Services
from millpond.broker.node import Node
from millpond.model.errors import BatchTooLarge, InvalidTimestamp, InvalidTopicName, MillpondError
from millpond.model.ids import TimestampMs, TopicPartition
from millpond.protocol.records import Headers, NewRecord

MESSAGES_MAX: Final = 10_000
"""Of one array: they are put into batches on the broker's loop, and others wait meanwhile."""
_NAMES_TOPIC: Final = b'"topic"'
_BLAMES: Final[Blames] = {InvalidTopicName: "topic", InvalidTimestamp: "timestamp", BatchTooLarge: "value"}


class NewMessage(Struct, forbid_unknown_fields=True, gc=False):
    topic: TopicName
    value: Annotated[Raw, Meta(examples=["one coffee"])]
    """What becomes of it is the content type's: the bytes of a text, JSON as it stands, or base64."""
    key: Annotated[Raw, Meta(examples=["table 4"])] = msgspec.field(default_factory=lambda: NOTHING)
    partition: Partition | None = None
    """Chosen by the key, as Kafka's clients do, where it is left out."""
    headers: NewHeaders = ()
    """In order, as name and value; or as an object."""
    timestamp: Timestamp | None = None
    """Now, where it is left out."""
    delay_ms: Delay | None = None
    """Delivered no earlier than so long from now."""
    deliver_at: Moment | None = None
    """Delivered no earlier than then; in the place of a delay."""


_one: Final = msgspec.json.Decoder(NewMessage)
_many: Final = msgspec.json.Decoder(list[NewMessage])


class Place(Struct):
    partition: int
    offset: int


def produce(services: Services, request: Request, answer: Answer) -> Coroutine[Any, Any, None] | None:
    """Waits for itself only where a topic has to be made first, or to be told to delay messages."""
    form = form_of_body(request.headers)
    messages: list[NewMessage]
    if is_array := request.body.lstrip()[:1] == b"[":
        if request.body.count(_NAMES_TOPIC) > MESSAGES_MAX:  # before it is taken apart
            raise _too_many()
        messages = decoded(_many, request.body)
        if len(messages) > MESSAGES_MAX:
            raise _too_many()
    else:
        messages = [decoded(_one, request.body)]
    send = _send_array if is_array else _send_one
    missing = [each for each in {message.topic for message in messages} if not services.producing.has_topic(each)]
    later = {
        f"[{number}]." if is_array else "": message
        for number, message in enumerate(messages)
        if message.delay_ms is not None or message.deliver_at is not None
    }
    if missing or later:
        return _prepare(services, form, sorted(missing), later, lambda: send(services, form, messages, answer))
    send(services, form, messages, answer)
    return None


def _too_many() -> Refusal:
    return Refusal(413, "too_many_messages", f"an array has {MESSAGES_MAX} messages at most; send several arrays")


async def _prepare(
    services: Services, form: Form, missing: Sequence[str], later: Mapping[str, NewMessage], then: Callable[[], None]
) -> None:
    """`later` are the delayed messages, by what stands before a field of theirs where it is named. No topic is made or
    told to delay messages before these are found right."""
    delayed_by: dict[str, str] = {}
    for prefix, message in later.items():
        try:
            _headers(services.node, form, message, services.node.clock.wall_ms())
        except Refusal as refusal:
            refusal.field = f"{prefix}{refusal.field}"
            raise
        field = "delay_ms" if message.deliver_at is None else "deliver_at"
        delayed_by.setdefault(message.topic, f"{prefix}{field}")
    for topic in missing:
        await services.producing.make_topic(topic)
    for topic, field in delayed_by.items():
        await queues.let_delay(services.node, services.neighbours, queues.find_queue(services.node, topic), field)
    then()


def _send_one(services: Services, form: Form, messages: list[NewMessage], answer: Answer) -> None:
    (message,) = messages
    at, record = _record(services, form, message, services.node.clock.wall_ms())

    def done(offsets: Sequence[int], error: MillpondError | None) -> None:
        if error is None:
            answer(Reply(200, JSON, b'{"partition":%d,"offset":%d}\n' % (at.partition, offsets[0])))
        else:
            answer(reply_to(error, _BLAMES))

    services.producing.send(at, Parcel([record], size_of(record), done))


def _send_array(services: Services, form: Form, messages: list[NewMessage], answer: Answer) -> None:
    if not messages:
        answer(Reply(200, JSON, b"[]\n"))
        return
    now_ms = services.node.clock.wall_ms()
    waiting: dict[TopicPartition, list[tuple[int, NewRecord]]] = {}
    anywhere: dict[str, list[tuple[int, NewRecord]]] = {}
    """Where the messages of a topic go that do not say where."""
    for number, message in enumerate(messages):
        is_plain = message.key is NOTHING and message.partition is None and not message.headers
        is_for_now = message.delay_ms is None and message.deliver_at is None
        try:
            if is_plain and is_for_now and (placed := anywhere.get(message.topic)) is not None:
                stamp = TimestampMs(now_ms if message.timestamp is None else message.timestamp)
                placed.append((number, NewRecord(bytes_of(form, message.value, "value"), None, stamp)))
                continue
            at, record = _record(services, form, message, now_ms)
        except Refusal as refusal:
            refusal.field = f"[{number}].{refusal.field}"
            raise
        placed = waiting.setdefault(at, [])
        placed.append((number, record))
        if is_plain:
            anywhere[message.topic] = placed
    Shipment(len(messages), lambda shipment: answer(_reply(shipment))).send(services.producing, waiting)


def _record(services: Services, form: Form, message: NewMessage, now_ms: int) -> tuple[TopicPartition, NewRecord]:
    key = bytes_of(form, message.key, "key")
    at = services.producing.place(message.topic, key, message.partition)
    headers = _headers(services.node, form, message, now_ms)
    timestamp = TimestampMs(now_ms if message.timestamp is None else message.timestamp)
    return at, NewRecord(bytes_of(form, message.value, "value"), key, timestamp, headers)


def _headers(node: Node, form: Form, message: NewMessage, now_ms: int) -> Headers:
    own = headers_of(form, message.headers) if message.headers else ()
    if message.delay_ms is None and message.deliver_at is None:
        return own
    asked = queues.Asked(message.delay_ms, moment_of(message.deliver_at))
    return queues.headers_with(own, asked, now_ms=now_ms, caps=queues.caps_of(node))[0]


def _reply(shipment: Shipment) -> Reply:
    if not shipment.errors:
        written = b",".join([b'{"partition":%d,"offset":%d}' % place for place in shipment.places])
        return Reply(200, JSON, b"[%b]\n" % written)
    results: list[dict[str, int | str]] = [
        {"code": code_of(error), "detail": str(error)}
        if (error := shipment.errors.get(number))
        else {"partition": place[0], "offset": place[1]}
        for number, place in enumerate(shipment.places)
    ]
    first, field = shipment.first_error, f"[{min(shipment.errors)}]"
    return problem(status_of(first), code_of(first), shipment.told(), field=field, results=results)


ROUTES = (
    Route(
        method="POST",
        path="/produce",
        summary="Send a message, or an array of them",
        quick=produce,
        body=NewMessage | list[NewMessage],
        answer=Place | list[Place],
        takes=tuple(FORMS),
        blames=_BLAMES,
    ),
)
