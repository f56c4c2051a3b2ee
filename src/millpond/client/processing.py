"""Many messages handled at once, in the order that matters, committed only when they are done.

Messages that must keep their order form a lane: those of one key, or of one partition. A worker takes the first message
of a lane, handles it, and puts the lane back in line if there is more in it: a slow message holds back only its lane.

Invariant: no two messages of a lane are handled at once; at most `concurrency` messages are being handled, and a few
times as many wait; a partition counts as done only up to its first message that is not.
Driven by consumer.py: `run` polls, `finish` and `forget` are called when partitions go to others.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable
from typing import Final, Literal, Protocol

from millpond.client.messages import Message
from millpond.client.positions import Positions
from millpond.client.progress import Progress
from millpond.model.errors import WrongUse
from millpond.model.ids import TopicPartition
from millpond.model.values import dataclass

Handler = Callable[[Message], Awaitable[object]]
Order = Literal["key", "partition", "none"]

WAITING_PER_WORKER: Final = 4
POLL_SECONDS: Final = 0.5


class Poll(Protocol):
    def __call__(self, max_records: int, timeout: float) -> Awaitable[list[Message]]: ...


@dataclass(slots=True, eq=False)
class _Job:
    message: Message
    progress: Progress
    is_running: bool = False


class Processing:
    def __init__(
        self,
        handler: Handler,
        *,
        concurrency: int,
        order: Order,
        positions: Positions,
        poll: Poll,
        attend: Callable[[], Awaitable[None]],
    ) -> None:
        """`attend` sees to what has to happen even while nothing more can be polled."""
        if concurrency < 1:
            raise WrongUse(f"concurrency is {concurrency}; it is at least 1")
        if order not in ("key", "partition", "none"):
            raise WrongUse(f"order is {order!r}; it is key, partition or none")
        self._handler = handler
        self._concurrency = concurrency
        self._order = order
        self._positions = positions
        self._poll = poll
        self._attend = attend
        self._lanes: dict[Hashable, deque[_Job]] = {}
        """A job is in its lane until it is done; only the first can be running."""
        self._ready: asyncio.Queue[Hashable] = asyncio.Queue()
        self._progress: dict[TopicPartition, Progress] = {}
        self._in_hand = 0
        self._changed = asyncio.Event()
        self._failure: Exception | None = None

    async def run(self) -> None:
        """Until a handler fails; then those that run are let finish, and the failure is raised."""
        workers = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]
        try:
            while self._failure is None:
                room = self._concurrency * WAITING_PER_WORKER - self._in_hand
                if room > 0:
                    for message in await self._poll(room, POLL_SECONDS):
                        self._begin(message)
                else:
                    self._changed.clear()
                    await self._changed.wait()
                    await self._attend()
            await self._until(lambda: not any(job.is_running for job in self._jobs()))
            raise self._failure
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            self._go_back()

    def wake(self) -> None:
        self._changed.set()

    def _jobs(self) -> list[_Job]:
        return [job for lane in self._lanes.values() for job in lane]

    async def _until(self, fact: Callable[[], bool]) -> None:
        while not fact():
            self._changed.clear()
            await self._changed.wait()

    # One message

    def _begin(self, message: Message) -> None:
        at = message.at
        progress = self._progress.get(at)
        if progress is None:
            progress = self._progress[at] = Progress(message.offset)
        progress.begin(message.offset)
        self._positions.held[at].done_to = progress.done_to
        self._in_hand += 1
        name = self._lane_of(message)
        lane = self._lanes.get(name)
        if lane is None:
            self._lanes[name] = deque([_Job(message, progress)])
            self._ready.put_nowait(name)
        else:
            lane.append(_Job(message, progress))

    def _lane_of(self, message: Message) -> Hashable:
        match self._order:
            case "partition":
                return message.at
            case "key" if message.key is not None:
                return message.at, message.key
            case _:
                return message.at, message.offset

    async def _work(self) -> None:
        while True:
            name = await self._ready.get()
            lane = self._lanes.get(name)
            if not lane or self._failure is not None:
                continue
            job = lane[0]
            job.is_running = True
            try:
                await self._handler(job.message)
            except Exception as error:
                self._failure = error
            else:
                self._finished(job)
            finally:
                job.is_running = False
                self._remove(name, job)
                self._changed.set()

    def _finished(self, job: _Job) -> None:
        job.progress.finish(job.message.offset)
        at = job.message.at
        if self._progress.get(at) is job.progress and at in self._positions.held:
            self._positions.held[at].done_to = job.progress.done_to

    def _remove(self, name: Hashable, job: _Job) -> None:
        lane = self._lanes[name]
        lane.remove(job)
        self._in_hand -= 1
        if lane:
            self._ready.put_nowait(name)
        else:
            del self._lanes[name]

    # Partitions that go

    async def finish(self, places: Collection[TopicPartition]) -> None:
        """Lets what is being handled of these be finished; what only waits is dropped, its next owner reads it."""
        self._drop(places)
        await self._until(lambda: not any(job.is_running and job.message.at in places for job in self._jobs()))

    def forget(self, places: Collection[TopicPartition]) -> None:
        self._drop(places)
        for at in places:
            self._progress.pop(at, None)

    def _drop(self, places: Collection[TopicPartition]) -> None:
        for name, lane in list(self._lanes.items()):
            for job in [each for each in lane if not each.is_running and each.message.at in places]:
                lane.remove(job)
                self._in_hand -= 1
            if not lane:
                del self._lanes[name]

    def _go_back(self) -> None:
        """What was polled and not handled is to be polled again."""
        for at, progress in self._progress.items():
            held = self._positions.held.get(at)
            if held is not None:
                if len(progress):
                    held.seek(progress.done_to)
                held.done_to = None
