"""A real broker inside a user's test: real sockets, real files, its own thread, and a clock the test turns.

    with InProcessBroker() as broker:
        broker.create_topic("orders", partitions=3)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        ...
        broker.clock.advance(60_000)

Invariant: after the `with` nothing is left, neither thread nor socket nor file (a data directory that was given stays),
and a bug in the broker has failed the test.
Driven by tests, from any thread but the broker's own.
"""

import asyncio
import random
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from millpond.app.broker import Broker
from millpond.app.broker_settings import BrokerSettings
from millpond.app.clock import SystemClock
from millpond.app.data_directory import DataDirectory
from millpond.broker.drivers.upkeep import tend
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.core.metadata.decisions import Refused
from millpond.storage.filesystem import OsFilesystem
from millpond.testing.clock import ManualClock

Result = TypeVar("Result")

GRACE_SECONDS = 1.0
"""How long the end of a test waits for answers, such as those of members that wait for others."""


class InProcessBroker:
    def __init__(
        self,
        *,
        data_directory: str | None = None,
        port: int = 0,
        configs: Mapping[str, str] | None = None,
        clock: ManualClock | None = None,
        http: bool = False,
        grpc: bool = False,
        seed: int = 0,
    ) -> None:
        """`configs` are a broker's settings by Kafka's names. Without a data directory there is one of its own, and
        without a port it listens on one that is free.

        With `http` there is an HTTP door at `http_url`, with `grpc` a gRPC door at `grpc_address`.

        Its clock starts at the true time and then stands still, because clients stamp records with the true time. So
        a new group does not wait for other members, unless `configs` say so.
        """
        self.clock = clock or ManualClock(wall_ms=SystemClock().wall_ms())
        self._given_directory = data_directory
        self._port = port
        self._configs = {"group.initial.rebalance.delay.ms": "0", **(configs or {})}
        self._http = ("127.0.0.1", 0) if http else None
        self._grpc = ("127.0.0.1", 0) if grpc else None
        self._rng = random.Random(seed)
        self._bugs: list[BaseException] = []
        self._running: _Running | None = None

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return f"127.0.0.1:{self.broker.port}"

    @property
    def http_url(self) -> str:
        """Without a slash at its end."""
        assert self.broker.http_port is not None, "start it with http=True"
        return f"http://127.0.0.1:{self.broker.http_port}"

    @property
    def grpc_address(self) -> str:
        """For a channel."""
        assert self.broker.grpc_port is not None, "start it with grpc=True"
        return f"127.0.0.1:{self.broker.grpc_port}"

    @property
    def broker(self) -> Broker:
        """Belongs to the broker's thread; use `run` to call it."""
        assert self._running is not None, "start it first, best with `with`"
        return self._running.broker

    @property
    def data_directory(self) -> str:
        assert self._running is not None, "start it first, best with `with`"
        return self._running.directory

    # From start to stop

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        assert self._running is None, "it runs already"
        self._running = _Running(self._given_directory, self._open)
        self.clock.turned = self._tend

    def stop(self) -> None:
        """Closes every log in order. Raises what failed inside the broker meanwhile."""
        if self._running is None:
            return
        self.clock.turned = lambda: None
        running, self._running = self._running, None
        running.end()
        if self._bugs:
            bugs, self._bugs = self._bugs, []
            raise BaseExceptionGroup("the broker failed while the test ran", bugs)

    async def _open(self, directory: str) -> Broker:
        return await Broker.start(
            BrokerSettings(
                data_directory=directory, port=self._port, http=self._http, grpc=self._grpc, configs=self._configs
            ),
            filesystem=OsFilesystem(),
            clock=self.clock,
            rng=self._rng,
            on_error=self._bugs.append,
        )

    def _tend(self) -> None:
        """So what has become too old is gone when the clock was turned, and not a minute later."""
        node = self.broker.node
        self.run(lambda: tend(node.metadata, node.partitions, node.delays, self.clock, on_error=self._bugs.append))

    # What a test asks of it

    def create_topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Returns when it can be used; raises the refusal otherwise."""
        topic = NewTopic(name=name, partitions=partitions, configs=tuple((configs or {}).items()))
        self.run(lambda: self._create(topic))

    async def _create(self, topic: NewTopic) -> None:
        node = self.broker.node
        decision = await node.metadata.decide(
            lambda image: create_topics(image, [topic], static=node.static, rng=node.rng)
        )
        for answer in decision.answers:
            if isinstance(answer, Refused):
                raise answer.error

    def run(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Runs a coroutine on the broker's loop, and waits for its result here."""
        assert self._running is not None, "start it first, best with `with`"
        return asyncio.run_coroutine_threadsafe(work(), self._running.loop).result()


class _Running:
    """One life of a broker, and the thread it has."""

    def __init__(self, given_directory: str | None, start: Callable[[str], Coroutine[Any, Any, Broker]]) -> None:
        """Returns when it listens; raises what kept it from that, with nothing left behind."""
        self._temporary = None if given_directory else tempfile.TemporaryDirectory(prefix="millpond-")
        self._start = start
        started: Future[tuple[Broker, asyncio.AbstractEventLoop]] = Future()
        self._stop = asyncio.Event()
        self.directory = given_directory or (self._temporary.name if self._temporary else "")
        try:
            lock = DataDirectory.lock(self.directory)
        except BaseException:
            self._remove_temporary()
            raise
        self._thread = threading.Thread(target=self._live, args=(started, lock), name="millpond-broker")
        self._thread.start()
        try:
            self.broker, self.loop = started.result()
        except BaseException:
            self._thread.join()
            self._remove_temporary()
            raise

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def _live(self, started: "Future[tuple[Broker, asyncio.AbstractEventLoop]]", lock: DataDirectory) -> None:
        try:
            asyncio.run(self._serve(started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)
        finally:
            lock.unlock()

    async def _serve(self, started: "Future[tuple[Broker, asyncio.AbstractEventLoop]]") -> None:
        broker = await self._start(self.directory)
        started.set_result((broker, asyncio.get_running_loop()))
        await self._stop.wait()
        await broker.stop(grace_seconds=GRACE_SECONDS)
