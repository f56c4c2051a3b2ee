"""POST /produce: one message, or an array of them.

    {"topic": "orders", "key": "table 4", "value": "one coffee"}      {"partition": 2, "offset": 17}

An array is answered with an array, in its order, when all are kept. Where some were refused the answer is a problem,
and its `results` say what became of each.
"""

from collections.abc import Coroutine, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from millpond.api.anywhere.producing import Parcel, Producing
from millpond.api.anywhere.refusals import Refusal, code_of, status_of
from millpond.api.anywhere.shipment import Shipment, size_of
from millpond.api.http.connection import Answer, Request
from millpond.api.http.forms import FORMS, NOTHING, Form, NewMessage, bytes_of, form_of_body
from millpond.api.http.problems import Blames, problem, reply_to
from millpond.api.http.replies import JSON, Reply
from millpond.api.http.routing import Route, decoded
from millpond.api.http.services import Services
from millpond.model.errors import BatchTooLarge, InvalidTimestamp, InvalidTopicName, MillpondError
from millpond.model.ids import TimestampMs, TopicPartition
from millpond.protocol.records import NewRecord

MESSAGES_MAX: Final = 10_000
"""Of one array: they are put into batches on the broker's loop, and others wait meanwhile."""
_NAMES_TOPIC: Final = b'"topic"'
_BLAMES: Final[Blames] = {InvalidTopicName: "topic", InvalidTimestamp: "timestamp", BatchTooLarge: "value"}

_one: Final = msgspec.json.Decoder(NewMessage)
_many: Final = msgspec.json.Decoder(list[NewMessage])


class Place(Struct):
    partition: int
    offset: int


def produce(services: Services, request: Request, answer: Answer) -> Coroutine[Any, Any, None] | None:
    """Waits for itself only where a topic has to be made first."""
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
    if missing:
        return _make_first(services, sorted(missing), lambda: send(services, form, messages, answer))
    send(services, form, messages, answer)
    return None


def _too_many() -> Refusal:
    return Refusal(413, "too_many_messages", f"an array has {MESSAGES_MAX} messages at most; send several arrays")


async def _make_first(services: Services, topics: Sequence[str], then: Any) -> None:  # noqa: ANN401
    for topic in topics:
        await services.producing.make_topic(topic)
    then()


def _send_one(services: Services, form: Form, messages: list[NewMessage], answer: Answer) -> None:
    (message,) = messages
    at, record = _record(services.producing, form, message, services.node.clock.wall_ms())

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
        try:
            if is_plain and (placed := anywhere.get(message.topic)) is not None:
                stamp = TimestampMs(now_ms if message.timestamp is None else message.timestamp)
                placed.append((number, NewRecord(bytes_of(form, message.value, "value"), None, stamp)))
                continue
            at, record = _record(services.producing, form, message, now_ms)
        except Refusal as refusal:
            refusal.field = f"[{number}].{refusal.field}"
            raise
        placed = waiting.setdefault(at, [])
        placed.append((number, record))
        if is_plain:
            anywhere[message.topic] = placed
    Shipment(len(messages), lambda shipment: answer(_reply(shipment))).send(services.producing, waiting)


def _record(producing: Producing, form: Form, message: NewMessage, now_ms: int) -> tuple[TopicPartition, NewRecord]:
    key = bytes_of(form, message.key, "key")
    at = producing.place(message.topic, key, message.partition)
    headers = tuple([(each.name, bytes_of(form, each.value, "headers")) for each in message.headers])
    timestamp = TimestampMs(now_ms if message.timestamp is None else message.timestamp)
    return at, NewRecord(bytes_of(form, message.value, "value"), key, timestamp, headers)


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
