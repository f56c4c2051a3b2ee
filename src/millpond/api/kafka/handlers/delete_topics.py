"""DeleteTopics: topics, by name or by id, with all their records.

Version notes: to 5 by name only.
"""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.metadata.controller import Deleted, TopicToDelete, delete_topics
from millpond.core.metadata.decisions import Refused
from millpond.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)


def answer(node: Node, request: DeleteTopicsRequest, context: Context) -> Awaitable[DeleteTopicsResponse]:
    by_name = [TopicToDelete(name=name) for name in request.topic_names]
    return _delete(node, by_name + [TopicToDelete(name=each.name, topic_id=each.topic_id) for each in request.topics])


async def _delete(node: Node, wanted: list[TopicToDelete]) -> DeleteTopicsResponse:
    decision = await node.metadata.decide(lambda image: delete_topics(image, wanted, static=node.static))
    results = [_result(asked, answer) for asked, answer in zip(wanted, decision.answers, strict=True)]
    return DeleteTopicsResponse(responses=list({(each.name, each.topic_id): each for each in results}.values()))


def _result(asked: TopicToDelete, answer: Deleted | Refused) -> DeletableTopicResult:
    if isinstance(answer, Refused):
        error = answer.error
        return DeletableTopicResult(
            name=asked.name, topic_id=asked.topic_id, error_code=error.kafka_code, error_message=str(error)
        )
    return DeletableTopicResult(name=answer.name, topic_id=answer.topic_id)
