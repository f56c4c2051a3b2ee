"""InitProducerId: a number for an idempotent producer.

Behaviour: every call gets a new id at epoch 0, also that of a producer that brings its own: ids are given out here,
and nobody names one for itself. Transactions are not served yet, and refused.
"""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
_INVALID_REQUEST = 42


def answer(
    node: Node, request: InitProducerIdRequest, context: Context
) -> Awaitable[InitProducerIdResponse] | InitProducerIdResponse:
    if request.transactional_id == "" or (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=_INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=-1)
    return _new(node)


async def _new(node: Node) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await node.producer_ids.take(), producer_epoch=0)
