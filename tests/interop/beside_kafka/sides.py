"""One broker's side of a scene: requests go out, and what comes back is written down so that two sides can be compared.

What no two brokers could agree on is written as what it is, not as what it says: an id as `an id`, a member as the
first, second or third that was met, a time about now as `now`. Messages for people are left out.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.protocol.messages.fields import NO_ID, Message
from millpond.protocol.messages.find_coordinator import FindCoordinatorRequest
from millpond.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millpond.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from millpond.protocol.messages.registry import APIS
from millpond.protocol.records import decode_batch, iter_batches
from tests.api.asking import create
from tests.api.brokers import Answer, Peer

LEFT_OUT = {"throttle_time_ms", "error_message", "documentation", "host", "port", "client_host", "cluster_id"}
LEFT_OUT |= {
    "heartbeat_interval_ms",
    "log_dir",
    "total_bytes",
    "usable_bytes",
    "partition_size",
    "rack",
    "controller_id",
    "session_id",
}
NAMED_BY_BROKERS = {"member_id", "leader", "producer_id"}
ABOUT_NOW_MS = 3_600_000
CLOSED = "the connection was closed"


Seen = dict[str, object]
"""An answer, by the way to each field."""


class Side:
    """`seen` is what was written down, by label."""

    def __init__(self, port: int, versions: dict[int, int], topic: Callable[[], str]) -> None:
        self.port = port
        self.seen: dict[str, Seen] = {}
        self._versions = versions
        self._topic = topic
        self._met: dict[object, str] = {}
        self._peers: dict[str, Peer] = {}

    def create(self, name: str, **how: Any) -> bytes:  # noqa: ANN401 - partitions, and settings
        """Returns the id, when the topic can be written to: Kafka answers before that."""
        topic_id = create(self.peer(), name, **how)
        for partition in range(how.get("partitions", 1)):
            part = ListOffsetsPartition(partition_index=partition, timestamp=-1)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[part])])
            while self.peer().ask(request, 7).topics[0].partitions[0].error_code:
                pass
        return topic_id

    def new_name(self) -> str:
        """Of a topic or group that is not there yet; the same on either side."""
        return self._topic()

    def peer(self, who: str = "") -> Peer:
        """A connection of somebody's."""
        if who not in self._peers:
            self._peers[who] = Peer(self)
        return self._peers[who]

    def close(self) -> None:
        for peer in self._peers.values():
            peer.__exit__(None, None, None)
        self._peers.clear()

    def newest(self, request: Message) -> int:
        return min(self._versions[request.api_key], APIS[request.api_key].version_max)

    def send(self, request: Message, version: int | None = None, *, who: str) -> None:
        """The answer is to be received by `receive`."""
        self.peer(who).send(request, self.newest(request) if version is None else version)

    def receive(self, label: str, request: Message, version: int | None = None, *, who: str) -> Answer:
        version = self.newest(request) if version is None else version
        return self._note(label, lambda: self.peer(who).receive(request.api_key, version), who)

    def ask(self, label: str, request: Message, version: int | None = None, *, who: str = "") -> Answer:
        """Writes the answer down under the label; no label, nothing written."""
        version = self.newest(request) if version is None else version
        return self._note(label, lambda: self.peer(who).ask(request, version), who)

    def _note(self, label: str, answer: Callable[[], Answer], who: str) -> Answer:
        try:
            found = answer()
        except (AssertionError, OSError) as error:
            self._peers.pop(who).__exit__(None, None, None)
            self.write(label or "without a label", CLOSED if "close" in str(error) else f"{CLOSED}: {error}")
            return None
        if label:
            self.write(label, found)
        return found

    def write(self, label: str, found: object) -> None:
        assert label not in self.seen, f"two answers are called {label}"
        self.seen[label] = dict(self._flat(found))

    def _flat(self, value: Any, way: str = "") -> list[tuple[str, object]]:  # noqa: ANN401 - any answer
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            found = []
            for field in dataclasses.fields(value):
                if field.name not in LEFT_OUT:
                    inner = self._plain(field.name, getattr(value, field.name))
                    found += self._flat(inner, f"{way}.{field.name}" if way else field.name)
            return found
        if isinstance(value, list) and value and dataclasses.is_dataclass(value[0]):
            value = sorted(value, key=self._order)  # brokers answer in any order
        if isinstance(value, list | tuple):
            items = [row for number, each in enumerate(value) for row in self._flat(each, f"{way}[{number}]")]
            return [(f"{way}.length", len(value)), *items]
        return [(way, value)]

    def _plain(self, name: str, value: Any) -> object:  # noqa: ANN401 - any field
        if name == "topic_id":
            return "no id" if value == NO_ID else "an id"
        if name in NAMED_BY_BROKERS and value not in ("", -1, None):
            return self._met.setdefault(value, f"somebody {len(self._met) + 1}")
        if name == "records" and value is not None:
            return records_in(value)
        if isinstance(value, int) and abs(value - time.time() * 1000) < ABOUT_NOW_MS:
            return "now"
        return bytes(value) if isinstance(value, memoryview) else value

    def _order(self, each: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a part of any answer
        keys = ("name", "topic", "group_id", "partition_index", "partition", "index", "group_instance_id", "client_id")
        # What a broker called somebody is by chance; when it was met is not.
        called = self._met.get(getattr(each, "member_id", None), "")
        return (*(str(getattr(each, key, "")) for key in keys), called)


def records_in(content: bytes) -> list[str]:
    found = []
    for position, header in iter_batches(content):
        for each in decode_batch(content, position):
            timestamp = "now" if abs(each.timestamp - time.time() * 1000) < ABOUT_NOW_MS else each.timestamp
            found.append(f"{each.offset} at {timestamp}: {each.key!r}={each.value!r} in {header.attributes:#x}")
    return found


def versions_of(port: int) -> dict[int, int]:
    """The newest of each API that a broker serves."""

    class _Reachable:
        def __init__(self, port: int) -> None:
            self.port = port

    request = ApiVersionsRequest(client_software_name="beside", client_software_version="1")
    with Peer(_Reachable(port)) as peer:
        return {each.api_key: each.max_version for each in peer.ask(request, 3).api_keys}


def wait_for_coordinators(port: int) -> None:
    """Until groups can be asked for: Kafka makes their topic when the first is."""
    side = Side(port, {}, str)
    for number in range(20):
        key = f"group-{number}"
        groups = [OffsetFetchRequestGroup(group_id=key, topics=[])]
        while (
            side.peer().ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[key]), 4).coordinators[0].error_code
            or side.peer().ask(OffsetFetchRequest(groups=groups), 8).groups[0].error_code
        ):
            pass
    side.close()


Scene = Callable[[Side], None]
