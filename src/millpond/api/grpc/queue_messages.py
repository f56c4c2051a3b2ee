"""Messages of queues, and what became of them, as they stand in protobuf.

Pure. Driven by the Queues servicer.
"""

from collections.abc import Sequence
from typing import Final

from millpond.api.anywhere.queues import ERROR_CHARS_MAX, Asked, Caps, Handful, Settlement, headers_with
from millpond.api.anywhere.refusals import Refusal, wrong
from millpond.api.grpc.consuming import fill
from millpond.api.grpc.failures import failure_of
from millpond.api.grpc.proto.millpond.v1 import messages_pb2
from millpond.api.grpc.proto.millpond.v1 import queues_pb2 as wire
from millpond.model.ids import TimestampMs
from millpond.protocol.records import Headers, NewRecord

_PRIORITIES: Final = {
    wire.PRIORITY_UNSPECIFIED: None,
    wire.PRIORITY_LOW: "low",
    wire.PRIORITY_NORMAL: "normal",
    wire.PRIORITY_HIGH: "high",
}


def headers_of(message: messages_pb2.NewMessage | wire.NewQueueMessage) -> Headers:
    return tuple([(each.name, each.value if each.HasField("value") else None) for each in message.headers])


def record_of(number: int, message: wire.NewQueueMessage, *, now_ms: int, caps: Caps) -> tuple[NewRecord, str | None]:
    """And the field that asks for a delay, where one does."""
    if message.priority not in _PRIORITIES:
        raise wrong(
            f"messages[{number}].priority", f"messages[{number}].priority is {message.priority}; allowed are 0 to 3"
        )
    asked = Asked(
        delay_ms=message.delay_ms if message.HasField("delay_ms") else None,
        deliver_at=message.deliver_at_ms if message.HasField("deliver_at_ms") else None,
        priority=_PRIORITIES[message.priority],
        ttl_ms=message.ttl_ms if message.HasField("ttl_ms") else None,
    )
    headers, delayed_by = asked_of(number, headers_of(message), asked, now_ms=now_ms, caps=caps)
    value = message.value if message.HasField("value") else None
    key = message.key if message.HasField("key") else None
    return NewRecord(value, key, TimestampMs(now_ms), headers), delayed_by


def asked_of(number: int, own: Headers, asked: Asked, *, now_ms: int, caps: Caps) -> tuple[Headers, str | None]:
    try:
        headers, delayed_by = headers_with(own, asked, now_ms=now_ms, caps=caps)
        return headers, delayed_by and f"messages[{number}].{delayed_by}"
    except Refusal as refusal:
        raise wrong(f"messages[{number}].{refusal.field}", f"messages[{number}]: {refusal}") from None


def filled(topic: str, handfuls: Sequence[Handful]) -> wire.ReceiveResponse:
    answer = wire.ReceiveResponse()
    for each in handfuls:
        for record, attempt in each.records:
            message = answer.messages.add(
                message_id=each.message_id(topic, record.offset),
                receipt=each.receipt(record.offset),
                attempt=attempt,
            )
            fill(message.message, record, topic, each.partition)
    return answer


def settled(receipts: Sequence[str], settlement: Settlement) -> wire.Settled:
    refused = [
        wire.RefusedReceipt(receipt=receipt, failure=failure_of(error).message())
        for receipt, error in zip(receipts, settlement.errors, strict=True)
        if error is not None
    ]
    return wire.Settled(settled=len(receipts) - len(refused), refused=refused)


def check_error(error: str) -> str:
    if len(error) > ERROR_CHARS_MAX:
        raise wrong("error", f"error has {len(error)} characters; allowed are {ERROR_CHARS_MAX}")
    return error
