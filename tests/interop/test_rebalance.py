"""Members come and go while messages flow: nothing is lost, and partitions that stay are not touched."""

from collections.abc import Callable

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.comings_and_goings import PARTITIONS, come_and_go
from tests.interop.confluent import new_topic
from tests.interop.facts import new_name
from tests.interop.flowing_group import Member

PROTOCOLS: dict[str, dict[str, object]] = {
    "cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 200},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_come_and_go_while_messages_flow(
    broker: BrokerProcess, protocol: str, record_property: Callable[[str, object], None]
) -> None:
    topic = new_topic(broker, partitions=PARTITIONS)
    settings: dict[str, object] = {"group_id": new_name("group"), **PROTOCOLS[protocol]}
    happened = come_and_go(broker, topic, lambda name, story: Member(broker, name, topic, story, **settings))
    record_property("figure", f"confluent-kafka, {protocol}: {happened.figures()}")
    happened.left.check_only_what_moves_is_touched(leaver="cy")
    happened.joined.check_only_what_moves_is_touched()
