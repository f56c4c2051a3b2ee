"""UnregisterBroker: a broker that is down and keeps nothing is forgotten."""

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.elections import unregister_broker
from millpond.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def answer(node: Node, request: UnregisterBrokerRequest, context: Context) -> UnregisterBrokerResponse:
    decision = await node.metadata.decide(lambda image: unregister_broker(image, request.broker_id))
    (done,) = decision.answers
    if isinstance(done, Refused):
        return UnregisterBrokerResponse(error_code=done.error.kafka_code, error_message=str(done.error))
    return UnregisterBrokerResponse()
