"""AlterConfigs: set the settings of a resource, all at once.

Behaviour: whatever is not named goes back to its default, which is why clients moved on to
IncrementalAlterConfigs.

Version notes:
    1  as 0    2  flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, boolean, int8, int16, int32, served, string, wire


@wire
class AlterableConfig:
    name: str = string()
    value: str | None = string(nullable_since=0)


@wire
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@wire
class AlterConfigsRequest:
    api_key: ClassVar[int] = 33
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 2

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@wire
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    resource_type: int = int8()
    resource_name: str = string()


@wire
class AlterConfigsResponse:
    api_key: ClassVar[int] = 33
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
