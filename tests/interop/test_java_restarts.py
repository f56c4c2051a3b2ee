"""The broker is stopped, or killed, under Java's clients, and comes back: they go on, and nothing kept is gone."""

import threading

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.facts import until
from tests.interop.flowing_group import Flow, Story, wait_read
from tests.interop.foreign_client import ForeignClient, ForeignMember
from tests.interop.java_traffic import IMPATIENT, JavaStream
from tests.interop.test_broker_restarts import ENDS
from tests.interop.test_java_groups import BOTH, PROTOCOLS
from tests.interop.test_java_records import new_topic
from tests.interop.traffic import check_log

pytestmark = pytest.mark.slow
MESSAGES = 1_000


def test_an_idempotent_producer_goes_on_without_a_loss_or_a_duplicate(
    own_broker: BrokerProcess, own_java: ForeignClient
) -> None:
    stream = JavaStream(own_java, new_topic(own_java), partitions=1, pause_ms=0)
    try:
        for end in ("stopped", "killed"):
            stream.history.wait_more(MESSAGES)
            ENDS[end](own_broker)
            own_broker.start()
        stream.history.wait_more(MESSAGES)
        stream.finish()
    finally:
        stream.abandon()
    check_log(own_broker, stream.history)


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
