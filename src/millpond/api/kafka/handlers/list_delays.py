"""ListDelays: the messages of a partition that wait to be delivered, by when they are due; Millpond's own."""

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.broker.operations.delays import list_delays
from millpond.core.delivery.wheel import Due
from millpond.model.errors import MillpondError
from millpond.protocol.messages.list_delays import DelayedMessage, ListDelaysRequest, ListDelaysResponse


def answer(node: Node, request: ListDelaysRequest, context: Context) -> ListDelaysResponse:
    after = Due(request.after_due, request.after_id)
    try:
        page = list_delays(node, request.topic, request.partition, after=after, count_max=request.count_max)
    except MillpondError as error:
        return ListDelaysResponse(error_code=error.kafka_code, error_message=str(error))
    return ListDelaysResponse(
        pending=page.pending,
        messages=[DelayedMessage(id=each.id, due=each.due, is_recurring=each.is_recurring) for each in page.messages],
    )
