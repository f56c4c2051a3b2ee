"""InitProducerId: a number for an idempotent producer.

Behaviour: every call gets a new id at epoch 0; a producer that brings its own gets the next epoch of it. Transactions
are not served yet, and refused.
"""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
_PRODUCER_EPOCH_MAX = 2**15 - 2


def answer(
    node: Node, request: InitProducerIdRequest, context: Context
) -> Awaitable[InitProducerIdResponse] | InitProducerIdResponse:
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=_TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.producer_id >= 0 and 0 <= request.producer_epoch < _PRODUCER_EPOCH_MAX:
        return InitProducerIdResponse(producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1)
    return _new(node)


async def _new(node: Node) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await node.producer_ids.take(), producer_epoch=0)
