"""MeasureQueues: of the queues that this broker has."""

from millpond.broker.cluster import Cluster
from millpond.broker.drivers.doorkeeper import Session
from millpond.broker.operations.queues import depths_here
from millpond.protocol.messages.measure_queues import Measured, MeasureQueuesRequest, MeasureQueuesResponse


async def answer(cluster: Cluster, request: MeasureQueuesRequest, session: Session) -> MeasureQueuesResponse:
    if cluster.node is None:
        return MeasureQueuesResponse()
    if request.reload:
        for number in request.partitions:
            cluster.node.queues.reload(request.group_id, request.topic_id, number)
        return MeasureQueuesResponse()
    found = await depths_here(cluster.node, request.group_id, request.topic_id, request.partitions)
    return MeasureQueuesResponse(
        partitions=[
            Measured(
                partition_index=each.partition,
                ready=each.ready,
                leased=each.leased,
                waiting=each.waiting,
                doomed=each.doomed,
                start_offset=each.start,
                end_offset=each.end,
            )
            for each in found
        ]
    )
