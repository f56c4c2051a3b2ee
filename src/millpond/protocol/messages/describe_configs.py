"""DescribeConfigs: settings of topics, brokers and groups, with where each comes from.

Behaviour: null `configuration_keys` asks for all. Values of sensitive settings are null.

Version notes:
    1  config_source and synonyms    3  types and documentation    4  flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, boolean, int8, int16, int32, served, string, wire


@wire
class DescribeConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(Kind.STRING, nullable_since=0)


@wire
class DescribeConfigsRequest:
    api_key: ClassVar[int] = 32
    versions: ClassVar[range] = served(1, 4)
    flexible_since: ClassVar[int | None] = 4

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3)


@wire
class DescribeConfigsSynonym:
    name: str = string()
    value: str | None = string(nullable_since=0)
    source: int = int8()


@wire
class DescribeConfigsResourceResult:
    name: str = string()
    value: str | None = string(nullable_since=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8(since=3)
    documentation: str | None = string(since=3, nullable_since=3)


@wire
class DescribeConfigsResult:
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@wire
class DescribeConfigsResponse:
    api_key: ClassVar[int] = 32
    versions: ClassVar[range] = served(1, 4)
    flexible_since: ClassVar[int | None] = 4

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
