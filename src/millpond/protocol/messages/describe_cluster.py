"""DescribeCluster: the brokers, or the controllers, and who is in charge.

Behaviour: endpoint_type 1 is brokers, 2 is controllers.

Version notes:
    0  flexible from the start    1  endpoint_type    2  fenced brokers on request, and marked
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, boolean, int8, int16, int32, served, string, wire


@wire
class DescribeClusterRequest:
    api_key: ClassVar[int] = 60
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 0

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    include_fenced_brokers: bool = boolean(since=2)


@wire
class DescribeClusterBroker:
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)
    is_fenced: bool = boolean(since=2)


@wire
class DescribeClusterResponse:
    api_key: ClassVar[int] = 60
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-(2**31))
