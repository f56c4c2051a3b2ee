"""The door for other brokers: the cluster's own APIs, on the listener where Kafka's are.

Invariant: who has not proved to be a broker of this cluster may greet, and nothing else; anything more gets what an
unknown API gets. A handler here answers at once, except on connections that are for nothing else: what waits there
holds up nobody.
Driven by api/kafka/dispatch.py, for keys that are not Kafka's.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from millpond.broker.cluster import Cluster
from millpond.broker.drivers.doorkeeper import Session
from millpond.protocol.messages.cluster_registry import CLUSTER_APIS, GREETINGS, MEET
from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.fields import Message

Handler = Callable[[Cluster, Any, Session], "Message | Awaitable[Message] | None"]


class Unwelcome(Exception):
    """The connection ends, without a word."""


class ClusterDoor:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._handlers: dict[int, Handler] = {}

    def handle(
        self, key: int, version: int, frame: memoryview, position: int, session: Session
    ) -> Message | Awaitable[Message] | None:
        """The answer, now or later, or None where there is to be none. Raises Unwelcome and MalformedMessage."""
        api = CLUSTER_APIS.get(key)
        if api is None or not api.serves(version) or not _may_ask(key, session):
            raise Unwelcome
        request, _ = decode(api.request_class, frame, version, position)
        handler = self._handlers.get(key)
        if handler is None:
            handler = import_module(f"millpond.api.cluster.handlers.{api.module}").answer
            self._handlers[key] = handler
        if session.broker is not None:
            self._cluster.doorkeeper.heard(session.broker)
        return handler(self._cluster, request, session)


def _may_ask(key: int, session: Session) -> bool:
    if key in GREETINGS:
        return True
    return session.broker is not None and (key == MEET) == session.is_meeting
