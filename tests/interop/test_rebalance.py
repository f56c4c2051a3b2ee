"""Members come and go while messages flow: nothing is lost, and partitions that stay are not touched."""

import time

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.confluent import new_topic
from tests.interop.facts import new_name
from tests.interop.flowing_group import (
    ASSIGNED,
    LOST,
    REVOKED,
    Flow,
    Member,
    Move,
    Story,
    seconds_until_shared,
    wait_read,
)

PARTITIONS = 6
PROTOCOLS: dict[str, dict[str, object]] = {
    "cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 500},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_come_and_go_while_messages_flow(
    broker: BrokerProcess, protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, story = new_topic(broker, partitions=PARTITIONS), Story()
    settings: dict[str, object] = {"group_id": new_name("group"), **PROTOCOLS[protocol]}
    flow = Flow(broker, topic, partitions=PARTITIONS)
    began = time.monotonic()
    members = {name: Member(broker, name, topic, story, **settings) for name in ("ada", "bea", "cy")}
    try:
        formed_s = seconds_until_shared(story, {"ada": 2, "bea": 2, "cy": 2}, began=began)
        before_leave, moves_before_leave = story.owners(), len(story.moves)

        began = time.monotonic()
        members.pop("cy").leave()
        left_s = seconds_until_shared(story, {"ada": 3, "bea": 3}, began=began)
        left = story.moves[moves_before_leave:]
        before_join, moves_before_join = story.owners(), len(story.moves)

        began = time.monotonic()
        members["dan"] = Member(broker, "dan", topic, story, **settings)
        joined_s = seconds_until_shared(story, {"ada": 2, "bea": 2, "dan": 2}, began=began)
        joined = story.moves[moves_before_join:]
        after = story.owners()

        flow.stop()
        wait_read(story, flow)
    finally:
        flow.stop()
        for member in members.values():
            member.leave()

    with capsys.disabled():
        print(  # noqa: T201 - a figure for whoever runs it
            f"\n{protocol}: formed in {formed_s:.2f} s, one left in {left_s:.2f} s, one joined in {joined_s:.2f} s; "
            f"{len(flow.acknowledged)} messages, {story.read.total() - len(story.read)} of them read twice, "
            f"commits refused meanwhile: {dict(story.refusals)}"
        )
    assert flow.errors == story.errors == []
    assert set(story.read) == set(flow.acknowledged)
    assert {value for value, times in story.read.items() if times > 1} <= story.uncommitted
    assert not [move for move in story.moves if move.kind == LOST]
    _only_what_moves_is_touched(left, before_leave, before_join, leaver="cy")
    _only_what_moves_is_touched(joined, before_join, after)


def _only_what_moves_is_touched(
    moves: list[Move], before: dict[int, str], after: dict[int, str], *, leaver: str | None = None
) -> None:
    moved = {partition for partition in before if before[partition] != after[partition]}
    assert len(moved) == 2, "no more moves than balance asks for"
    revoked = {(move.member, move.partition) for move in moves if move.kind == REVOKED}
    assert revoked == {(before[partition], partition) for partition in moved}
    assigned = {(move.member, move.partition) for move in moves if move.kind == ASSIGNED}
    assert assigned == {(after[partition], partition) for partition in moved}
    if leaver is not None:
        assert {member for member, _ in revoked} == {leaver}
