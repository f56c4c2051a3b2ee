"""ListConfigResources: which resources have settings of their own.

Behaviour: an empty list of types asks for all types there are.

Version notes:
    0  client metrics resources only, flexible from the start    1  any type
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, int8, int16, int32, served, string, wire


@wire
class ListConfigResourcesRequest:
    api_key: ClassVar[int] = 74
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = 0

    resource_types: list[int] = array(Kind.INT8, since=1)


@wire
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8(since=1, default=16)


@wire
class ListConfigResourcesResponse:
    api_key: ClassVar[int] = 74
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
