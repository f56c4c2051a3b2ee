"""SettleMessages: in the queues that this broker has, when it is kept."""

from collections.abc import Sequence

from millpond.broker.cluster import Cluster
from millpond.broker.drivers.doorkeeper import Session
from millpond.broker.drivers.queue_links import Saying, held_of, run_of
from millpond.broker.drivers.queue_partition import Held
from millpond.broker.operations.queues import settle_here
from millpond.core.delivery.states import Outcome
from millpond.model.errors import MalformedMessage, MillpondError
from millpond.protocol.messages.settle_messages import SettledPartition, SettleMessagesRequest, SettleMessagesResponse


async def answer(cluster: Cluster, request: SettleMessagesRequest, session: Session) -> SettleMessagesResponse:
    if cluster.node is None:
        return SettleMessagesResponse()
    try:
        outcome = Outcome(request.outcome)
    except ValueError as error:
        raise MalformedMessage(str(error)) from None
    saying = Saying(
        outcome,
        delay_ms=None if request.delay_ms < 0 else request.delay_ms,
        lock_ms=None if request.lock_ms < 0 else request.lock_ms,
        reason=request.reason,
    )
    held = {part.partition_index: list(map(held_of, part.held)) for part in request.partitions}
    settled = await settle_here(cluster.node, request.group_id, request.topic_id, held, saying)
    return SettleMessagesResponse(partitions=[_partition(number, lost) for number, lost in settled.items()])


def _partition(number: int, lost: Sequence[Held] | MillpondError) -> SettledPartition:
    if isinstance(lost, MillpondError):
        return SettledPartition(partition_index=number, error_code=lost.kafka_code, error_message=str(lost))
    return SettledPartition(partition_index=number, lost=list(map(run_of, lost)))
