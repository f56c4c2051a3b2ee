"""Several brokers on one machine, for trying a cluster: a process for each, started and ended together.

Each is `millpond up` as anybody would start it by hand, with peers and a secret; nothing here is needed to run a real
cluster. Their log lines come out as this process's own, each with its broker.

    DIR/lock  DIR/cluster-secret  DIR/1  DIR/2  DIR/3

Invariant: no broker outlives `run_cluster`, nor this process. One that ends before all are ready ends all; one that
ends later is told of loudly, and the others go on.
Driven by the command line, once per process.
"""

import asyncio
import ctypes
import os
import secrets
import signal
import socket
import sys
from asyncio import StreamReader
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import field
from pathlib import Path
from typing import TextIO

from millpond.app.clock import SystemClock
from millpond.app.data_directory import DataDirectory
from millpond.app.forwarding import ForwardedLine, write_line
from millpond.app.logging_setup import set_up_logging
from millpond.app.refusals import CannotStart
from millpond.app.settings import OFF, PORT_MAX, Settings
from millpond.app.signals import stop_signals
from millpond.app.sources import ENVIRONMENT_PREFIX
from millpond.model.addresses import Address
from millpond.model.errors import InvalidSetting
from millpond.model.values import dataclass
from millpond.telemetry.events import (
    CLUSTER_BROKER_ENDED,
    CLUSTER_STARTED,
    CLUSTER_STOPPED,
    CLUSTER_STOPPING,
    tell,
)

BROKERS_MIN, BROKERS_MAX = 2, 9
COPIES = 3
SECRET_FILE = "cluster-secret"
STOP_SECONDS_MAX = 20.0
"""Longer than a broker takes that lets its clients have their answers."""
LINE_BYTES_MAX = 4 << 20
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class _Child:
    node_id: int
    process: Process
    is_ready: bool = False
    plain: list[str] = field(default_factory=list)
    """What it said in plain words: a refusal is the last of them."""

    @property
    def how(self) -> str:
        code = self.process.returncode
        assert code is not None
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def run_cluster(settings: Settings, brokers: int, *, out: TextIO | None = None) -> None:
    """Returns after an orderly stop; raises `CannotStart` where one broker cannot, and where all have ended."""
    out = out or sys.stdout
    _check(settings, brokers)
    set_up_logging(settings.log_format, out)
    directory = DataDirectory.lock(settings.data_dir)
    try:
        _check_contents(settings.data_dir, brokers)
        secret_file = _secret_file(Path(settings.data_dir))
        addresses = _addresses(settings.kafka, brokers)
        commands = {each: _command(settings, each, addresses, secret_file) for each in addresses}
        asyncio.run(_Cluster(settings, addresses, out).run(commands))
    finally:
        directory.unlock()


class _Cluster:
    def __init__(self, settings: Settings, addresses: Mapping[int, Address], out: TextIO) -> None:
        self._settings = settings
        self._addresses = addresses
        self._out = out
        self._clock = SystemClock()
        self._children: list[_Child] = []
        self._changed = asyncio.Event()
        self._signals: list[signal.Signals] = []

    async def run(self, commands: Mapping[int, Sequence[str]]) -> None:
        began_ms = self._clock.monotonic_ms()
        loop = asyncio.get_running_loop()
        for each in stop_signals():
            loop.add_signal_handler(each, self._heard, each)
        readers: list[asyncio.Task[None]] = []
        try:
            for node_id, command in commands.items():
                child = await self._start(node_id, command)
                readers.append(loop.create_task(self._read(child)))
            await self._wait_ready()
            if not self._signals:
                self._tell_started(self._clock.monotonic_ms() - began_ms)
            await self._watch()
        finally:
            await self._end_all()
            await asyncio.gather(*readers)

    def _heard(self, number: signal.Signals) -> None:
        if self._signals:
            self._kill()
        self._signals.append(number)
        self._changed.set()

    async def _start(self, node_id: int, command: Sequence[str]) -> _Child:
        own = {name: text for name, text in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            env=own,
            limit=LINE_BYTES_MAX,
            start_new_session=True,  # a terminal's Ctrl-C comes to this process alone, which passes it on
            preexec_fn=_end_with_parent,
        )
        child = _Child(node_id, process)
        self._children.append(child)
        return child

    async def _read(self, child: _Child) -> None:
        reader = child.process.stdout
        assert reader is not None
        while (text := await _next_line(reader)) is not None:
            line = ForwardedLine.parse(text, node_id=child.node_id)
            if line.event == "broker_started":
                child.is_ready = True
                self._changed.set()
            elif line.event is None:
                child.plain = [*child.plain[-20:], line.text]
            write_line(self._out, line, self._settings.log_format)
        await child.process.wait()
        self._changed.set()

    # Start, watch, end

    async def _wait_ready(self) -> None:
        while not self._signals and not all(child.is_ready for child in self._children):
            if gone := [child for child in self._children if child.process.returncode is not None]:
                first = gone[0]
                said = (first.plain[-1] if first.plain else "it did not say why").removeprefix("millpond: ")
                raise CannotStart(f"broker {first.node_id} ended before the cluster was ready ({first.how}): {said}")
            await self._next_change()

    def _tell_started(self, took_ms: int) -> None:
        tell(
            CLUSTER_STARTED,
            brokers=len(self._children),
            bootstrap=",".join(map(str, self._addresses.values())),
            pids={child.node_id: child.process.pid for child in self._children},
            data_dir=self._settings.data_dir,
            took_ms=took_ms,
        )

    async def _watch(self) -> None:
        """Until a signal."""
        told: set[int] = set()
        total = len(self._children)
        while not self._signals:
            for child in self._children:
                if child.process.returncode is not None and child.node_id not in told:
                    told.add(child.node_id)
                    left = total - len(told)
                    is_majority = left > total // 2
                    tell(
                        CLUSTER_BROKER_ENDED,
                        node_id=child.node_id,
                        how=child.how,
                        left=left,
                        brokers=total,
                        outlook="a majority" if is_majority else "NOT A MAJORITY: NOTHING CAN BE WRITTEN",
                    )
            if len(told) == total:
                raise CannotStart("every broker of the cluster has ended; what they said is above")
            await self._next_change()

    async def _next_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    async def _end_all(self) -> None:
        running = [child for child in self._children if child.process.returncode is None]
        began_ms = self._clock.monotonic_ms()
        if self._signals:
            tell(CLUSTER_STOPPING, signal=self._signals[0].name)
        slow = not await self._end_in_turn(running)
        if slow:
            self._kill()
            await asyncio.gather(*(child.process.wait() for child in running))
        if self._signals:
            how = f"; by force, as they did not within {STOP_SECONDS_MAX:.0f} s" if slow else ""
            tell(CLUSTER_STOPPED, took_ms=self._clock.monotonic_ms() - began_ms, how=how)

    async def _end_in_turn(self, running: Sequence[_Child]) -> bool:
        """Whether they did in time. All at once, each would wait for others to take over that are about to go too."""
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                for child in running:
                    if child.process.returncode is None:
                        child.process.send_signal(signal.SIGTERM)
                    await child.process.wait()
        except TimeoutError:
            return False
        return True

    def _kill(self) -> None:
        for child in self._children:
            if child.process.returncode is None:
                child.process.kill()


async def _next_line(reader: StreamReader) -> str | None:
    try:
        line = await reader.readline()
    except ValueError:  # longer than any line of ours
        return "(a line that is too long to show)"
    return line.decode(errors="replace").rstrip("\n") if line else None


def _end_with_parent() -> None:
    """Runs in the new process: the kernel asks it to stop when this one is gone, however that ended."""
    with suppress(OSError, AttributeError):  # not Linux: a killed parent leaves its brokers behind
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


# What the brokers are told


def _check(settings: Settings, brokers: int) -> None:
    if not BROKERS_MIN <= brokers <= BROKERS_MAX:
        raise InvalidSetting(
            f"--cluster is {brokers}; allowed is a number of brokers from {BROKERS_MIN} to {BROKERS_MAX}; write 3, "
            "which goes on when any one of them fails"
        )
    if settings.peers or settings.discovery or settings.cluster_secret:
        raise InvalidSetting(
            "--cluster starts brokers that know each other, and peers, discovery or a cluster secret is given as well; "
            "leave those out, or start each broker of a real cluster by itself, without --cluster"
        )
    if settings.advertise is not None:
        raise InvalidSetting("--cluster gives every broker an address of its own; leave --advertise out")
    if settings.kafka.port and settings.kafka.port + brokers - 1 > PORT_MAX:
        raise InvalidSetting(
            f"kafka is {settings.kafka}; {brokers} brokers need as many ports from there on, up to {PORT_MAX}"
        )


def _check_contents(data_dir: str, brokers: int) -> None:
    if os.path.exists(f"{data_dir}/node"):
        raise CannotStart(
            f"the data directory {data_dir} belongs to one broker; give the cluster another with --data-dir"
        )
    known = [name for name in os.listdir(data_dir) if name.isdigit()]
    if known and len(known) != brokers:
        raise CannotStart(
            f"the data directory {data_dir} holds a cluster of {len(known)} brokers; start it with --cluster "
            f"{len(known)}, or another with another --data-dir"
        )


def _secret_file(directory: Path) -> Path:
    """Drawn once; only this user reads it."""
    path = directory / SECRET_FILE
    if not path.exists():
        draft = directory / f"{SECRET_FILE}.new"
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        draft.rename(path)
    return path


def _addresses(first: Address, brokers: int) -> dict[int, Address]:
    """The first as asked for, the others on the next ports; with port 0 whichever are free."""
    if first.port:
        return {number: Address(first.host, first.port + number - 1) for number in range(1, brokers + 1)}
    family = socket.AF_INET6 if ":" in first.host else socket.AF_INET
    with ExitStack() as stack:
        # All are held until all are known, so that no port comes twice.
        listeners = [stack.enter_context(socket.create_server((first.host, 0), family=family)) for _ in range(brokers)]
        return {number: Address(first.host, each.getsockname()[1]) for number, each in enumerate(listeners, start=1)}


def _door(first: Address | None, node_id: int) -> str:
    """Every broker has it, so that any of them answers: the first where asked, the others on the next ports."""
    if first is None:
        return OFF
    return str(Address(first.host, first.port + node_id - 1 if first.port else 0))


def _command(settings: Settings, node_id: int, addresses: Mapping[int, Address], secret_file: Path) -> list[str]:
    given = {
        "data-dir": f"{settings.data_dir}/{node_id}",
        "kafka": str(addresses[node_id]),
        "node-id": str(node_id),
        "cluster-id": settings.cluster_id,
        "peers": ",".join(f"{number}@{address}" for number, address in addresses.items()),
        "cluster-secret-file": str(secret_file),
        "http": _door(settings.http, node_id),
        "grpc": _door(settings.grpc, node_id),
        "log-format": "json",
    }
    if settings.offset_store is not None:
        given["offset-store"] = settings.offset_store
    command = [sys.executable, "-m", "millpond.cli", "up"]
    command += [f"--{name}={text}" for name, text in given.items()]
    # A cluster is tried for its copies: a topic made without saying how many has them.
    configs = {"default.replication.factor": str(min(COPIES, len(addresses))), **settings.configs}
    command += [f"--set={name}={text}" for name, text in configs.items()]
    return [*command, "--insecure"] if settings.insecure else command
