"""A cluster, asked from code without an event loop: Spark's tasks and planners.

    with Link(connection) as link:
        ends = link.offsets(dict.fromkeys(partitions, LATEST))

A task borrows the one that the task before it in its process has left (`task_link`), where that ended well: to connect,
and to ask who leads what, takes longer than to fetch what a small micro-batch has.

Invariant: after `close` neither thread nor socket is left. Belongs to one thread, beside its own.
Driven by source.py and sink.py.
"""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from pyspark import TaskContext

from millpond.client.admin_groups import Groups
from millpond.client.cluster import Cluster
from millpond.client.offsets import offsets_at
from millpond.client.refusals import refusal
from millpond.model.errors import BrokerUnreachable, UnknownTopicOrPartition
from millpond.model.ids import Offset, TopicPartition
from millpond.pipeline.options import Connection
from millpond.pipeline.wire import Wire

Result = TypeVar("Result")


_left: dict[tuple[int, Connection], "Link"] = {}
"""By process: one that was forked since has nothing of another's."""


@contextmanager
def task_link(connection: Connection) -> Iterator["Link"]:
    """Kept for the next task of this process, in Spark; its process ends when it has had none for a minute."""
    mine = (os.getpid(), connection)
    link = _left.pop(mine, None) or Link(connection)
    is_well = False
    try:
        yield link
        is_well = True
    finally:
        if is_well and TaskContext.get() is not None and mine not in _left:
            _left[mine] = link
        else:
            link.close()


class Link:
    def __init__(self, connection: Connection) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="millpond-spark", daemon=True)
        self._thread.start()
        self._is_open = True
        self._wires: dict[int, Wire] = {}
        self.cluster = self.run(self._made(connection))
        try:
            self.run(self.cluster.start())
        except BaseException:
            self.close()
            raise

    @staticmethod
    async def _made(connection: Connection) -> Cluster:
        return Cluster(connection.settings())

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.begin(work).result()

    def begin(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Goes on while the caller does something else."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            for node in list(self._wires):
                self.cut_wire(node)
            self.run(self.cluster.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def wire(self, node: int) -> Wire:
        """To fetch on, without the loop; kept until it is cut."""
        wire = self._wires.get(node)
        if wire is None:
            settings = self.cluster.settings
            address = self.cluster.view.brokers.get(node)
            if address is None:
                raise BrokerUnreachable(f"it is not known where broker {node} is")
            wire = Wire(address, client_id=settings.client_id, seconds_max=settings.request_seconds_max)
            self._wires[node] = wire
        return wire

    def cut_wire(self, node: int) -> None:
        wire = self._wires.pop(node, None)
        if wire is not None:
            wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # What planners ask

    def partitions(self, topics: tuple[str, ...]) -> list[TopicPartition]:
        """Of topics that are there; `UnknownTopicOrPartition` where one is not."""

        async def look() -> list[TopicPartition]:
            refused = await self.cluster.refresh(topics)
            for name, code in refused.items():
                reason = "there is no such topic; create it, or correct the name" if code == 3 else None
                raise refusal(code, reason, of=f"topic {name}")
            return self._partitions_where(topics.__contains__)

        return self.run(self.cluster.retrying(look, final=UnknownTopicOrPartition))

    def partitions_matching(self, pattern: str) -> list[TopicPartition]:
        """Of all topics whose name the pattern matches; none where there is none yet."""
        matches = re.compile(pattern).fullmatch

        async def look() -> list[TopicPartition]:
            self.cluster.view.topics.clear()  # or deleted ones would stay
            await self.cluster.refresh(None)
            return self._partitions_where(lambda name: matches(name) is not None)

        return self.run(self.cluster.retrying(look))

    def _partitions_where(self, is_wanted: Callable[[str], bool]) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, number)
            for topic in self.cluster.view.topics.values()
            if is_wanted(topic.name) and not topic.is_internal
            for number in range(len(topic.partitions))
        ]

    def ids(self) -> dict[str, str]:
        """Of topics that were asked for, where the cluster gives them any."""
        return {each.name: each.topic_id.hex() for each in self.cluster.view.topics.values() if any(each.topic_id)}

    def offsets(self, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """The first offset not older than each moment; where there is none, the end."""
        return self.run(offsets_at(self.cluster, moments)) if moments else {}

    def begin_commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> "Future[object]":
        groups = Groups(self.cluster)
        return self.begin(self.cluster.retrying(lambda: groups.reset(group, offsets, topics=None, dry_run=False)))
