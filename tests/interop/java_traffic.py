"""Java's clients that go on through whatever happens to a cluster, and tell their histories.

A `JavaStream` is an idempotent producer of numbered values; a `JavaReader` is a group's one member, that commits what
it has read. Both are threads of java/Client.java, which tells what happens to them as it happens. What must hold of
what they saw is in histories.py.
"""

from tests.interop.facts import new_name
from tests.interop.foreign_client import ForeignClient, Told
from tests.interop.histories import Read, Sent
from tests.interop.test_java_groups import PROTOCOLS

IMPATIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 50}


class JavaStream:
    def __init__(self, java: ForeignClient, topic: str, *, partitions: int, pause_ms: int = 2) -> None:
        """Without a pause it sends as fast as what it may hold is acknowledged."""
        self.history = Sent(topic, partitions=partitions)
        self._java = java
        self._name = new_name("stream")
        self._is_open = True
        java.listen(self._name, self._hear)
        safe = {"enable.idempotence": True, "acks": "all"}
        many_batches = {"batch.size": 1_000, "buffer.memory": 50_000}
        settings = {**IMPATIENT, **safe, **many_batches}
        java.ask("stream", name=self._name, topic=topic, partitions=partitions, pause_ms=pause_ms, settings=settings)

    def _hear(self, told: Told) -> None:
        if told["event"] == "acknowledged":
            number, offset = told["kept"]
            self.history.acknowledged(number, offset=offset)
        else:
            self.history.errors.append(told)

    def finish(self) -> None:
        """Everything that was sent is acknowledged when this returns."""
        self.abandon()
        self.history.check_all_acknowledged()

    def abandon(self) -> None:
        if self._is_open:
            self._is_open = False
            self.history.total = self._java.ask("end_stream", name=self._name)


class JavaReader:
    def __init__(self, java: ForeignClient, topic: str, protocol: str, *, partitions: int) -> None:
        self.history = Read(new_name(f"java-{protocol}-group"), partitions=partitions)
        self._java = java
        self._ends: dict[int, int] = {}
        java.listen(self.history.group, self._hear)
        settings = {**IMPATIENT, **PROTOCOLS[protocol], "group.id": self.history.group}
        java.ask("join", name=self.history.group, topic=topic, settings=settings)

    def _hear(self, told: Told) -> None:
        match told["event"]:
            case "read":
                for partition, value, offset in told["values"]:
                    self.history.note(int(value), partition=partition, offset=offset)
                    self._ends[partition] = offset + 1
            case "kept":
                for partition in told["partitions"]:
                    self.history.commits(partition, offset=self._ends[partition])
            case "assigned" | "revoked" | "lost" | "refused":
                pass  # what was not committed may come again
            case _:
                self.history.errors.append(told)

    def close(self) -> None:
        self._java.ask("leave", name=self.history.group)
