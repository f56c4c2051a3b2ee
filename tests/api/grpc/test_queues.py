"""The Queues service: what goes in comes out once, and what becomes of it is what was said."""

import queue as threads
from collections.abc import Iterable, Iterator
from typing import Any, Self

import grpc
import pytest

from millpond.api.grpc.proto.millpond.v1 import queues_pb2 as wire
from millpond.model.limits import MIB
from millpond.testing.broker import InProcessBroker
from tests.api.grpc.asking import SECONDS_MAX, Door, refused
from tests.api.http.test_queues import configure_group

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def send(door: Door, topic: str, *values: bytes, **asked: Any) -> list[str]:  # noqa: ANN401
    messages = [wire.NewQueueMessage(value=value, **asked) for value in values]
    answer = door.queues.Send(wire.SendRequest(topic=topic, messages=messages), timeout=SECONDS_MAX)
    return [each.message_id for each in answer.messages]


def receive(door: Door, topic: str, group: str = "kitchen", **asked: Any) -> list[wire.QueueMessage]:  # noqa: ANN401
    request = wire.ReceiveRequest(topic=topic, group=group, **asked)
    return list(door.queues.Receive(request, timeout=SECONDS_MAX).messages)


def values(messages: Iterable[wire.QueueMessage]) -> list[bytes]:
    return [each.message.value for each in messages]


def stats(door: Door, topic: str, group: str = "kitchen") -> tuple[int, int, int, int]:
    found = door.queues.GetStats(wire.GetStatsRequest(topic=topic, group=group), timeout=SECONDS_MAX)
    return found.ready, found.in_flight, found.waiting, found.dying


def test_a_message_is_sent_received_and_acknowledged(door: Door) -> None:
    assert send(door, "jobs", b"one", b"two") == ["jobs/0/0", "jobs/0/1"]
    first, second = receive(door, "jobs", max=10)
    assert (first.message.value, first.message_id, first.attempt) == (b"one", "jobs/0/0", 1)
    assert stats(door, "jobs") == (0, 2, 0, 0)
    acked = door.queues.Ack(
        wire.AckRequest(topic="jobs", group="kitchen", receipts=[first.receipt, second.receipt]), timeout=SECONDS_MAX
    )
    assert (acked.settled, list(acked.refused)) == (2, [])
    assert stats(door, "jobs") == (0, 0, 0, 0)
    again = door.queues.Ack(wire.AckRequest(topic="jobs", group="kitchen", receipts=[first.receipt]))
    assert (again.settled, again.refused[0].receipt) == (0, first.receipt)
    assert again.refused[0].failure.code == "lease_lost"


def test_a_receive_waits_for_the_first_message(door: Door) -> None:
    send(door, "awaited", b"before")
    receive(door, "awaited")
    waiting = door.queues.Receive.future(wire.ReceiveRequest(topic="awaited", group="kitchen", wait_ms=20_000))
    send(door, "awaited", b"after")
    assert values(waiting.result(SECONDS_MAX).messages) == [b"after"]


def test_what_is_given_back_comes_again_and_dies_in_the_end(broker: InProcessBroker, door: Door) -> None:
    configure_group(broker, "cooks", {"share.delivery.count.limit": "2"})
    send(door, "burnt", b"soup", key=b"table 4")
    for attempt in (1, 2):
        (message,) = receive(door, "burnt", "cooks", wait_ms=20_000)
        assert message.attempt == attempt
        nack = wire.NackRequest(topic="burnt", group="cooks", receipts=[message.receipt], delay_ms=0, error="too hot")
        assert door.queues.Nack(nack, timeout=SECONDS_MAX).settled == 1
    wanted = wire.ListDeadLettersRequest(topic="burnt", group="cooks")
    while not (page := door.queues.ListDeadLetters(wanted, timeout=SECONDS_MAX)).letters:
        pass
    (letter,) = page.letters
    assert (letter.origin, letter.group, letter.attempts, letter.error) == ("burnt/0/0", "cooks", 2, "too hot")
    assert (letter.message.key, letter.message.value, page.HasField("next")) == (b"table 4", b"soup", False)
    redrive = wire.RedriveRequest(topic="burnt", group="cooks")
    assert door.queues.Redrive(redrive, timeout=SECONDS_MAX).redriven == 1
    assert door.queues.Redrive(redrive, timeout=SECONDS_MAX).redriven == 0
    assert values(receive(door, "burnt", "cooks", wait_ms=20_000)) == [b"soup"]


def test_an_extended_message_stays_and_a_late_one_comes_again(broker: InProcessBroker, door: Door) -> None:
    send(door, "kept", b"long", b"short")
    long, short = receive(door, "kept", visibility_ms=400)
    extend = wire.ExtendRequest(topic="kept", group="kitchen", receipts=[long.receipt], visibility_ms=3_600_000)
    assert door.queues.Extend(extend, timeout=SECONDS_MAX).settled == 1
    broker.clock.advance(400)
    (again,) = receive(door, "kept", wait_ms=20_000)
    assert (again.message_id, again.attempt) == (short.message_id, 2)


def test_the_higher_priority_comes_first_and_what_is_too_old_never(broker: InProcessBroker, door: Door) -> None:
    configure_group(broker, "ranked", {"millpond.priority": "strict"})
    send(door, "ranks", b"low", priority=wire.PRIORITY_LOW)
    send(door, "ranks", b"dead", ttl_ms=1)
    send(door, "ranks", b"high", priority=wire.PRIORITY_HIGH)
    send(door, "ranks", b"plain")
    broker.clock.advance(1)
    assert values(receive(door, "ranks", "ranked", max=3)) == [b"high", b"plain", b"low"]


def test_a_delayed_message_comes_when_it_is_due(broker: InProcessBroker, door: Door) -> None:
    send(door, "later", b"later", delay_ms=20_000)
    send(door, "later", b"now")
    assert values(receive(door, "later", wait_ms=20_000)) == [b"now"]
    broker.clock.advance(20_000)
    assert values(receive(door, "later", wait_ms=20_000)) == [b"later"]


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (wire.NewQueueMessage(delay_ms=-1), "messages[0]: delay_ms is -1"),
        (wire.NewQueueMessage(delay_ms=1, deliver_at_ms=1), "messages[0]: delay_ms and deliver_at"),
        (wire.NewQueueMessage(ttl_ms=0), "messages[0]: ttl_ms is 0"),
        (wire.NewQueueMessage(priority=9), "messages[0].priority is 9"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused_by_name(door: Door, message: wire.NewQueueMessage, named: str) -> None:
    with refused(INVALID, "invalid_field", naming=named):
        door.queues.Send(wire.SendRequest(topic="sense", messages=[message]), timeout=SECONDS_MAX)


def test_a_delay_is_refused_where_the_topic_has_none(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("prompt", configs={"millpond.delay": "off"})
    with refused(INVALID, "delays_are_off", naming="millpond.delay"):
        send(door, "prompt", b"later", delay_ms=1_000)


def test_requests_that_cannot_be_done_are_refused(door: Door) -> None:
    send(door, "strict", b"x")
    with refused(grpc.StatusCode.NOT_FOUND, "unknown_topic_or_partition"):
        receive(door, "nowhere")
    for asked, named in (
        ({"max": 0}, "max is 0"),
        ({"max": 1_001}, "max is 1001"),
        ({"wait_ms": 60_001}, "wait_ms is 60001"),
        ({"visibility_ms": 0}, "visibility_ms is 0"),
        ({"group": ""}, "group"),
        ({"group": "x" * 250}, "250"),
    ):
        with refused(INVALID, "invalid_field", naming=named):
            receive(door, "strict", **asked)
    none = door.queues.Ack(wire.AckRequest(topic="strict", group="kitchen", receipts=["no receipt"]))
    assert (none.settled, none.refused[0].failure.code) == (0, "lease_lost")
    with refused(INVALID, "invalid_field", naming="0 receipts"):
        door.queues.Ack(wire.AckRequest(topic="strict", group="kitchen"))


# A consumer by a stream


class Working:
    """A Work call, asked and answered one by one."""

    def __init__(self, door: Door, topic: str, **options: Any) -> None:  # noqa: ANN401
        self._requests: threads.SimpleQueue[wire.WorkRequest | None] = threads.SimpleQueue()
        self.call = door.queues.Work(iter(self._requests.get, None), timeout=SECONDS_MAX)
        self.say(begin=wire.Begin(topic=topic, group="kitchen", **options))

    def say(self, **what: Any) -> None:  # noqa: ANN401
        self._requests.put(wire.WorkRequest(**what))

    def delivered(self, count: int) -> list[wire.QueueMessage]:
        found: list[wire.QueueMessage] = []
        while len(found) < count:
            found += next(self.call).delivery.messages
        return found

    def settled(self, receipts: list[str]) -> wire.Settled:
        self.say(ack=wire.WorkAck(receipts=receipts))
        return next(self.call).settled  # type: ignore[no-any-return]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(None)
        self.call.cancel()


@pytest.fixture
def working(door: Door) -> Iterator[Any]:
    calls: list[Working] = []

    def begin(topic: str, **options: Any) -> Working:  # noqa: ANN401
        calls.append(Working(door, topic, **options))
        return calls[-1]

    yield begin
    for call in calls:
        call.__exit__()


def test_a_stream_is_given_as_many_as_it_has_room_for(door: Door, working: Any) -> None:  # noqa: ANN401
    send(door, "flow", *[b"%d" % number for number in range(7)])
    work = working("flow", unsettled_max=3)
    first = work.delivered(3)
    assert values(first) == [b"0", b"1", b"2"]
    assert stats(door, "flow") == (4, 3, 0, 0)
    assert work.settled([first[0].receipt, first[1].receipt]).settled == 2
    assert values(work.delivered(2)) == [b"3", b"4"]
    assert stats(door, "flow") == (2, 3, 0, 0)


def test_a_stream_that_ends_gives_back_what_it_did_not_settle(door: Door) -> None:
    send(door, "ended", b"x", b"y")
    with Working(door, "ended", unsettled_max=2) as work:
        done, _ = work.delivered(2)
        work.settled([done.receipt])
    (again,) = receive(door, "ended", wait_ms=20_000)
    assert (again.message.value, again.attempt) == (b"y", 2)


def test_a_message_whose_time_is_up_makes_room(
    broker: InProcessBroker,
    door: Door,
    working: Any,  # noqa: ANN401
) -> None:
    send(door, "late", b"x")
    work = working("late", unsettled_max=1, visibility_ms=200)
    (first,) = work.delivered(1)
    broker.clock.advance(200)
    (again,) = work.delivered(1)
    assert (again.message_id, again.attempt) == (first.message_id, 2)


def test_a_stream_settles_in_other_ways_too(door: Door, working: Any) -> None:  # noqa: ANN401
    send(door, "ways", b"x")
    work = working("ways", unsettled_max=1)
    (message,) = work.delivered(1)
    work.say(extend=wire.WorkExtend(receipts=[message.receipt], visibility_ms=60_000))
    assert next(work.call).settled.settled == 1
    work.say(nack=wire.WorkNack(receipts=[message.receipt], delay_ms=0, error="not mine"))
    assert next(work.call).settled.settled == 1
    assert work.delivered(1)[0].attempt == 2


def test_a_stream_begins_once(door: Door) -> None:
    send(door, "once", b"x")
    ack = wire.WorkRequest(ack=wire.WorkAck(receipts=["x"]))
    begin = wire.WorkRequest(begin=wire.Begin(topic="once", group="kitchen"))
    for requests in ([ack], [], [begin, begin]):
        with refused(INVALID, "invalid_field"):
            list(door.queues.Work(iter(requests), timeout=SECONDS_MAX))
    nowhere = wire.WorkRequest(begin=wire.Begin(topic="nowhere", group="kitchen"))
    with refused(grpc.StatusCode.NOT_FOUND, "unknown_topic_or_partition"):
        list(door.queues.Work(iter([nowhere]), timeout=SECONDS_MAX))


def test_a_slow_consumer_is_not_leased_ahead_for(door: Door, working: Any) -> None:  # noqa: ANN401
    for _ in range(12):
        send(door, "slow", *[bytes(500_000)] * 4)
    work = working("slow", unsettled_max=1_000)
    next(work.call)
    for _ in range(50):  # the broker answers others meanwhile, and could have handed out everything
        send(door, "meanwhile", b"x")
    ready, in_flight, *_ = stats(door, "slow")
    assert ready + in_flight == 48
    assert in_flight * 500_000 < 12 * MIB, "it holds what was written, and one more answer"
