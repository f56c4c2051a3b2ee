"""The broker is stopped, or killed, under Java's clients, and comes back: they go on, and nothing kept is gone."""

import threading

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.confluent import read_from_start, values_of
from tests.interop.facts import until
from tests.interop.flowing_group import Flow, Story, wait_read
from tests.interop.foreign_client import ForeignClient, ForeignMember
from tests.interop.test_broker_restarts import ENDS
from tests.interop.test_java_groups import BOTH, PROTOCOLS
from tests.interop.test_java_records import new_topic

pytestmark = pytest.mark.slow
MESSAGES = 12_000
IMPATIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


def test_an_idempotent_producer_goes_on_without_a_loss_or_a_duplicate(
    own_broker: BrokerProcess, own_java: ForeignClient
) -> None:
    topic = new_topic(own_java)
    small_batches = {"batch.size": 1_000, "buffer.memory": 50_000}
    own_java.ask("flow", topic=topic, count=MESSAGES, settings={**IMPATIENT, **small_batches})
    for count, end in ((1_000, "stopped"), (5_000, "killed")):
        wait_acknowledged(own_java, count)
        ENDS[end](own_broker)
        assert own_java.ask("flowed") < MESSAGES, "the broker ended before the producer did"
        own_broker.start()
    assert own_java.ask("wait_flow") == []
    assert values_of(read_from_start(own_broker, topic, MESSAGES)) == [b"%d" % number for number in range(MESSAGES)]


def wait_acknowledged(java: ForeignClient, count: int) -> None:
    for _ in until(lambda: java.ask("flowed") >= count, what=f"{count} acknowledged"):
        threading.Event().wait(0.001)


@pytest.mark.parametrize("protocol", BOTH)
def test_a_group_goes_on(own_broker: BrokerProcess, own_java: ForeignClient, protocol: str) -> None:
    topic, story = new_topic(own_java, partitions=2), Story()
    settings = {"group.id": "group", **IMPATIENT, **PROTOCOLS[protocol]}
    flow = Flow(own_broker, topic, partitions=2)
    members = [ForeignMember(own_java, name, topic, story, settings) for name in ("ada", "bea")]
    pause = threading.Event()
    try:
        for _ in until(lambda: len(story.read) >= 500, what="500 read"):
            pause.wait(0.005)
        own_broker.kill()
        own_broker.start()
        before = len(flow.acknowledged)
        for _ in until(lambda: len(flow.acknowledged) >= before + 500, what="500 more acknowledged"):
            pause.wait(0.005)
        flow.stop()
        wait_read(story, flow)
    finally:
        flow.stop()
        for member in members:
            member.leave()
    assert flow.errors == story.errors == []
    assert set(story.read) == set(flow.acknowledged)
    assert {value for value, times in story.read.items() if times > 1} <= story.uncommitted
