"""ApiVersions: what this broker speaks.

Behaviour: the first thing most clients ask. Answered without looking at anything, so that it works before all else.
Version notes: the answer's header never has tagged fields, at any version; Produce is advertised from 0, because older
librdkafka releases take a higher minimum as a sign that compression is not understood.
"""

from millpond.api.kafka.context import Context
from millpond.api.kafka.served import SERVED
from millpond.broker.node import Node
from millpond.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse


def answer(node: Node, request: ApiVersionsRequest | None, context: Context) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.version_advertised_min, max_version=api.version_max)
            for api in SERVED.values()
        ]
    )
