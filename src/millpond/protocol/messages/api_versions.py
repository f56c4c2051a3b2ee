"""ApiVersions: what this broker speaks; the first request on a connection.

Behaviour: served before authentication. A version that is not served is answered in version 0 with
UNSUPPORTED_VERSION and the full list all the same, and the client asks again. The response header never has tagged
fields, whatever the version. Only what has a handler may be listed.

Version notes:
    1  throttling    3  flexible; name and version of the client software; features    4  feature ranges may start at 0
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, boolean, int16, int32, int64, served, string, wire


@wire
class ApiVersionsRequest:
    api_key: ClassVar[int] = 18
    versions: ClassVar[range] = served(0, 4)
    flexible_since: ClassVar[int | None] = 3

    client_software_name: str = string(since=3)
    client_software_version: str = string(since=3)


@wire
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@wire
class SupportedFeatureKey:
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@wire
class FinalizedFeatureKey:
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@wire
class ApiVersionsResponse:
    api_key: ClassVar[int] = 18
    versions: ClassVar[range] = served(0, 4)
    flexible_since: ClassVar[int | None] = 3

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, tag=0)
    finalized_features_epoch: int = int64(since=3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, tag=2)
    zk_migration_ready: bool = boolean(since=3, tag=3)
