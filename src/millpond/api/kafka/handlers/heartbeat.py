"""Heartbeat: a member of a classic group is alive; the answer tells it to join again where a rebalance has begun."""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.classic_events import Heartbeat, HeartbeatResult
from millpond.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def answer(node: Node, request: HeartbeatRequest, context: Context) -> Awaitable[HeartbeatResponse]:
    asked = node.groups.ask(
        request.group_id,
        lambda token: Heartbeat(
            token=token,
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=request.group_instance_id,
        ),
    )
    return _response(asked)


async def _response(asked: Awaitable[HeartbeatResult]) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=(await asked).error)
