"""Members of share groups, of confluent-kafka and of Java's client, behind one face."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from confluent_kafka import AcknowledgeType
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from tests.interop.confluent import POLL_SECONDS, Reachable, new_admin, new_share_consumer
from tests.interop.facts import FACT_SECONDS_MAX, new_name
from tests.interop.foreign_client import ForeignClient

COMMIT_SECONDS = 10.0


class Delivered(NamedTuple):
    value: str
    deliveries: int


class Sharer(Protocol):
    def take(self, acknowledge: Mapping[str, str] | None = None) -> list[Delivered]:
        """What one poll brings. A member that acknowledges explicitly says how, by value; the rest is accepted."""

    def commit(self) -> list[str]:
        """The errors of those partitions whose acknowledgements were refused."""

    def close(self) -> None:
        """Leaves; a second time does nothing."""


class ConfluentSharer:
    def __init__(self, broker: Reachable, group: str, topic: str, *, mode: str) -> None:
        self._consumer = new_share_consumer(broker, group_id=group, share_acknowledgement_mode=mode)
        self._consumer.subscribe([topic])
        self._is_open = True

    def take(self, acknowledge: Mapping[str, str] | None = None) -> list[Delivered]:
        taken = []
        for message in self._consumer.poll(POLL_SECONDS):
            assert message.error() is None, message.error()
            value = (message.value() or b"").decode()
            if acknowledge is not None:
                self._consumer.acknowledge(message, AcknowledgeType[acknowledge.get(value, "ACCEPT")])
            taken.append(Delivered(value, message.delivery_count() or 0))
        return taken

    def commit(self) -> list[str]:
        answers = self._consumer.commit_sync(COMMIT_SECONDS)
        return [error.args[0].name() for error in answers.values() if error is not None]

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._consumer.close()


class JavaSharer:
    def __init__(self, java: ForeignClient, group: str, topic: str, *, mode: str) -> None:
        self._java = java
        self._name = new_name("sharer")
        settings = {"group.id": group, "share.acknowledgement.mode": mode, "fetch.max.wait.ms": 50}
        java.ask("share_open", name=self._name, topic=topic, settings=settings)
        self._is_open = True

    def take(self, acknowledge: Mapping[str, str] | None = None) -> list[Delivered]:
        taken = self._java.ask("share_poll", name=self._name, acknowledge=acknowledge)
        return [Delivered(value, deliveries) for value, deliveries in taken]

    def commit(self) -> list[str]:
        errors: list[str] = self._java.ask("share_commit", name=self._name)
        return errors

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._java.ask("share_close", name=self._name)


def configure(broker: Reachable, group: str, **settings: object) -> None:
    """`settings` by their names, with `_` for each dot."""
    entries = [
        ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = new_admin(broker)
    admin.incremental_alter_configs([resource])[resource].result(FACT_SECONDS_MAX)
