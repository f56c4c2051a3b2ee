"""AlterDelay: a message that waits to be delivered is cancelled, or due at another moment; Millpond's own."""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.broker.operations.delays import cancel, reschedule
from millpond.model.errors import MillpondError
from millpond.protocol.messages.alter_delay import CANCEL, AlterDelayRequest, AlterDelayResponse


def answer(node: Node, request: AlterDelayRequest, context: Context) -> Awaitable[AlterDelayResponse]:
    return _alter(node, request)


async def _alter(node: Node, request: AlterDelayRequest) -> AlterDelayResponse:
    at, timeout_ms = (node, request.topic, request.partition, request.id), request.timeout_ms
    try:
        if request.due == CANCEL:
            await cancel(*at, timeout_ms=timeout_ms)
        else:
            await reschedule(*at, request.due, timeout_ms=timeout_ms)
    except MillpondError as error:
        return AlterDelayResponse(error_code=error.kafka_code, error_message=str(error))
    return AlterDelayResponse()
