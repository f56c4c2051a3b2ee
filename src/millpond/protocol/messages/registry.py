"""The APIs Millpond's codec speaks, and in which versions: what ApiVersions advertises and requests are looked up in.

Invariant: the versions here are those of the classes named; a test holds them together.
Pure. Importing it imports no API: a class is loaded when it is first asked for. Driven by the Kafka front door.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, cast

if TYPE_CHECKING:  # declarations bring `dataclasses` and `inspect` with them; a table of numbers needs neither
    from millpond.protocol.messages.fields import Message

API_VERSIONS_KEY: Final = 18
OWN_KEYS_FROM: Final = 20_000
"""From here on APIs are Millpond's own, and no other library knows them."""


class Api(NamedTuple):
    """One row: an API key and what belongs to it."""

    key: int
    name: str
    version_min: int
    version_max: int
    flexible_since: int | None
    """First version with compact lengths, tagged fields and the longer headers; None where no version has them."""
    version_advertised_min: int
    """0 for Produce, though 3 is the first we take: some librdkafka releases stop compressing where it is more."""
    module: str
    """`ListOffsets` lives in list_offsets.py."""

    @property
    def request_class(self) -> "type[Message]":
        return _load(self.module, f"{self.name}Request")

    @property
    def response_class(self) -> "type[Message]":
        return _load(self.module, f"{self.name}Response")

    def serves(self, version: int) -> bool:
        return self.version_min <= version <= self.version_max

    def is_flexible(self, version: int) -> bool:
        return self.flexible_since is not None and version >= self.flexible_since


@cache
def _load(module: str, name: str) -> "type[Message]":
    return cast("type[Message]", getattr(import_module(f"millpond.protocol.messages.{module}"), name))


def _api(key: int, name: str, first: int, last: int, flexible_since: int | None, advertised: int | None = None) -> Api:
    module = "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
    return Api(key, name, first, last, flexible_since, first if advertised is None else advertised, module)


APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        # key, name, first version, last version, flexible since
        _api(0, "Produce", 3, 13, 9, advertised=0),
        _api(1, "Fetch", 4, 17, 12),
        _api(2, "ListOffsets", 1, 10, 6),
        _api(3, "Metadata", 0, 13, 9),
        _api(8, "OffsetCommit", 2, 10, 8),
        _api(9, "OffsetFetch", 1, 10, 6),
        _api(10, "FindCoordinator", 0, 6, 3),
        _api(11, "JoinGroup", 0, 9, 6),
        _api(12, "Heartbeat", 0, 4, 4),
        _api(13, "LeaveGroup", 0, 5, 4),
        _api(14, "SyncGroup", 0, 5, 4),
        _api(15, "DescribeGroups", 0, 6, 5),
        _api(16, "ListGroups", 0, 5, 3),
        _api(17, "SaslHandshake", 0, 1, None),
        _api(18, "ApiVersions", 0, 4, 3),
        _api(19, "CreateTopics", 2, 7, 5),
        _api(20, "DeleteTopics", 1, 6, 4),
        _api(21, "DeleteRecords", 0, 2, 2),
        _api(22, "InitProducerId", 0, 5, 2),
        _api(23, "OffsetForLeaderEpoch", 2, 4, 4),
        _api(32, "DescribeConfigs", 1, 4, 4),
        _api(33, "AlterConfigs", 0, 2, 2),
        _api(35, "DescribeLogDirs", 1, 5, 2),
        _api(36, "SaslAuthenticate", 0, 2, 2),
        _api(37, "CreatePartitions", 0, 3, 2),
        _api(42, "DeleteGroups", 0, 2, 2),
        _api(43, "ElectLeaders", 0, 2, 2),
        _api(44, "IncrementalAlterConfigs", 0, 1, 1),
        _api(45, "AlterPartitionReassignments", 0, 1, 0),
        _api(46, "ListPartitionReassignments", 0, 0, 0),
        _api(47, "OffsetDelete", 0, 0, None),
        _api(55, "DescribeQuorum", 0, 2, 0),
        _api(60, "DescribeCluster", 0, 2, 0),
        _api(61, "DescribeProducers", 0, 0, 0),
        _api(64, "UnregisterBroker", 0, 0, 0),
        _api(68, "ConsumerGroupHeartbeat", 0, 1, 0),
        _api(69, "ConsumerGroupDescribe", 0, 1, 0),
        _api(74, "ListConfigResources", 0, 1, 0),
        _api(75, "DescribeTopicPartitions", 0, 0, 0),
        _api(76, "ShareGroupHeartbeat", 1, 1, 0),
        _api(77, "ShareGroupDescribe", 1, 1, 0),
        _api(78, "ShareFetch", 1, 2, 0),
        _api(79, "ShareAcknowledge", 1, 2, 0),
        _api(80, "AddRaftVoter", 0, 1, 0),
        _api(81, "RemoveRaftVoter", 0, 0, 0),
        _api(90, "DescribeShareGroupOffsets", 0, 1, 0),
        _api(91, "AlterShareGroupOffsets", 0, 0, 0),
        _api(92, "DeleteShareGroupOffsets", 0, 0, 0),
        # Millpond's own, with keys far from Kafka's
        _api(21000, "ListDelays", 0, 0, 0),
        _api(21001, "AlterDelay", 0, 0, 0),
    )
}
"""By API key. A broker advertises those of them that it has a handler for."""
