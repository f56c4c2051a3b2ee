"""ApiVersions: what this broker speaks.

Behaviour: the first thing most clients ask. Answered without looking at anything, so that it works before all else.
Version notes: from 3 on a client says which it is, in letters, digits, dots and lines, or is refused;
the answer's header never has tagged fields, at any version; Produce is advertised from 0, because older
librdkafka releases take a higher minimum as a sign that compression is not understood.
"""

import re

from millpond.api.kafka.context import Context
from millpond.api.kafka.served import SERVED
from millpond.broker.node import Node
from millpond.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_NAMED_SINCE = 3
_INVALID_REQUEST = 42
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def answer(node: Node, request: ApiVersionsRequest | None, context: Context) -> ApiVersionsResponse:
    if request is not None and context.version >= _NAMED_SINCE and not _is_named(request):
        return ApiVersionsResponse(error_code=_INVALID_REQUEST, api_keys=[])
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.version_advertised_min, max_version=api.version_max)
            for api in SERVED.values()
        ]
    )


def _is_named(request: ApiVersionsRequest) -> bool:
    said = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(text) for text in said)
