"""Delayed messages: sent with Produce, listed, cancelled, put off."""

import grpc

from millpond.api.grpc.proto.millpond.v1 import delays_pb2 as wire
from millpond.api.grpc.proto.millpond.v1 import messages_pb2
from millpond.testing.broker import InProcessBroker
from tests.api.grpc.asking import SECONDS_MAX, Door, refused

HOUR_MS = 3_600_000


def listed(door: Door, topic: str, **asked: object) -> wire.ListDelaysResponse:
    request = wire.ListDelaysRequest(topic=topic, **asked)  # type: ignore[arg-type]
    return door.delays.ListDelays(request, timeout=SECONDS_MAX)  # type: ignore[no-any-return]


def test_delayed_messages_wait_are_listed_cancelled_and_put_off(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("reminders", configs={"millpond.delay": "on"})
    now_ms = broker.clock.wall_ms()
    for message in (
        messages_pb2.NewMessage(topic="reminders", value=b"third", delay_ms=3 * HOUR_MS),
        messages_pb2.NewMessage(topic="reminders", value=b"first", deliver_at_ms=now_ms + HOUR_MS),
        messages_pb2.NewMessage(topic="reminders", value=b"second", delay_ms=2 * HOUR_MS),
    ):
        door.produce(message)
    first, page = listed(door, "reminders", count=1), listed(door, "reminders")
    assert [each.deliver_at_ms - now_ms for each in page.messages] == [HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS]
    assert (page.pending, page.HasField("next")) == (3, False)
    assert list(listed(door, "reminders", after=first.next).messages) == list(page.messages)[1:]
    cancelled, put_off, kept = [each.message_id for each in page.messages]
    door.delays.CancelDelay(wire.CancelDelayRequest(message_id=cancelled), timeout=SECONDS_MAX)
    later = wire.RescheduleDelayRequest(message_id=put_off, deliver_at_ms=now_ms + 9 * HOUR_MS)
    door.delays.RescheduleDelay(later, timeout=SECONDS_MAX)
    assert [each.message_id for each in listed(door, "reminders").messages] == [kept, put_off]
    assert door.consume("reminders") == []
    broker.clock.advance(4 * HOUR_MS)
    answers = door.messages.Consume(messages_pb2.ConsumeRequest(topic="reminders", follow=True), timeout=SECONDS_MAX)
    assert [each.value for each in next(answers).messages] == [b"third"]
    answers.cancel()
    with refused(grpc.StatusCode.NOT_FOUND, "message_not_found"):
        door.delays.CancelDelay(wire.CancelDelayRequest(message_id=cancelled), timeout=SECONDS_MAX)


def test_what_cannot_be_delayed_or_cancelled_is_refused_at_once(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("prompt", configs={"millpond.delay": "off"})
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "delays_are_off", naming="millpond.delay"):
        door.produce(messages_pb2.NewMessage(topic="prompt", delay_ms=1))
    broker.create_topic("slack", configs={"millpond.delay": "on"})
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "invalid_field", naming="messages[0]: delay_ms is -1"):
        door.produce(messages_pb2.NewMessage(topic="slack", delay_ms=-1))
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "invalid_field", naming="messages[0]: delay_ms is -1"):
        door.produce(messages_pb2.NewMessage(topic="never-made", delay_ms=-1))
    assert "never-made" not in broker.broker.node.image.topics
    missing = grpc.StatusCode.NOT_FOUND
    with refused(missing, "unknown_topic_or_partition", naming="partition 7"):
        door.delays.CancelDelay(wire.CancelDelayRequest(message_id="slack/7/0"), timeout=SECONDS_MAX)
    with refused(missing, "unknown_topic_or_partition", naming="nowhere"):
        listed(door, "nowhere")
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "invalid_request", naming="message id"):
        door.delays.CancelDelay(wire.CancelDelayRequest(message_id="slack"), timeout=SECONDS_MAX)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "invalid_field", naming="count is 0"):
        listed(door, "slack", count=0)
