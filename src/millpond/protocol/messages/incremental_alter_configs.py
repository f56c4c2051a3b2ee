"""IncrementalAlterConfigs: change single settings of resources.

Behaviour: config_operation 0 sets, 1 deletes, 2 appends to a list, 3 takes from it. A resource changes as a whole
or not at all.

Version notes:
    1  flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, boolean, int8, int16, int32, served, string, wire


@wire
class AlterableConfig:
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable_since=0)


@wire
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@wire
class IncrementalAlterConfigsRequest:
    api_key: ClassVar[int] = 44
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = 1

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@wire
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    resource_type: int = int8()
    resource_name: str = string()


@wire
class IncrementalAlterConfigsResponse:
    api_key: ClassVar[int] = 44
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = 1

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
