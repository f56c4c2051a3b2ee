"""One broker as a process: locked, started, listening until a signal, stopped in order.

Invariant: after the first of the signals that ask for a stop everything that was accepted is answered and every log
closed; a second one ends the process at once, and recovery does the rest at the next start.
Driven by the command line, once per process.
"""

import asyncio
import errno
import gc
import os
import random
import resource
import signal
import socket
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from millpond import __version__
from millpond.app.broker import Broker
from millpond.app.broker_settings import BrokerSettings, assignor_names
from millpond.app.clock import SystemClock
from millpond.app.data_directory import DataDirectory
from millpond.app.logging_setup import set_up_logging
from millpond.app.recovery_summary import RecoverySummary
from millpond.app.refusals import CannotListen, CannotStart
from millpond.app.settings import LogFormat, Settings
from millpond.app.signals import stop_signals
from millpond.core.groups.assignors import ASSIGNORS, Assignor
from millpond.core.groups.stores import OffsetStore
from millpond.model.addresses import Address
from millpond.model.errors import StorageError
from millpond.net.limits import NetworkLimits
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.kernel_syncs import open_kernel_syncs
from millpond.telemetry.events import (
    BROKER_STARTED,
    BROKER_STOPPED,
    BROKER_STOPPING,
    HTTP_OPEN_TO_EVERYBODY,
    OPEN_TO_EVERYBODY,
    tell,
)
from millpond.telemetry.troubles import Troubles

try:
    from millpond.app.loop import BrokerLoop

    new_loop: Callable[[], AbstractEventLoop] = BrokerLoop
except ImportError:  # not on every system; asyncio's own does the same, slower
    new_loop = asyncio.new_event_loop

FILES_MAX = 1 << 20
ALLOCATIONS_PER_COLLECTION = 20_000
"""Python's 700 is less than a few dozen requests hold that wait for the disk: all of them would be looked through, and
found to be in use, again and again. That took a fifth of what a request costs."""


def run(settings: Settings, *, out: TextIO | None = None) -> None:
    """Returns after an orderly stop; raises `CannotStart` where the machine does not allow a start."""
    out = out or sys.stdout
    set_up_logging(settings.log_format, out)
    if os.path.exists(f"{settings.data_dir}/1/node"):
        raise CannotStart(
            f"the data directory {settings.data_dir} holds brokers that were started together; start them with "
            "--cluster, or give this one its own with --data-dir"
        )
    directory = DataDirectory.lock(settings.data_dir)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_serve(settings, out))
    finally:
        directory.unlock()


async def _serve(settings: Settings, out: TextIO) -> None:
    syncs = open_kernel_syncs()
    try:
        await _live(settings, out, OsFilesystem(syncs=syncs))
    finally:
        if syncs is not None:
            syncs.close()


async def _live(settings: Settings, out: TextIO, filesystem: OsFilesystem) -> None:
    clock = SystemClock()
    signals = _Signals()
    asked, starting = asyncio.ensure_future(signals.wait()), asyncio.ensure_future(_start(settings, filesystem, clock))
    await asyncio.wait([asked, starting], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        await _give_up(starting, await asked, clock)
        return
    broker = await starting
    collect_garbage_seldom()
    _tell_started(settings, broker, out)
    name = await asked
    tell(BROKER_STOPPING, signal=name)
    began_ms = clock.monotonic_ms()
    await broker.stop()
    tell(BROKER_STOPPED, took_ms=clock.monotonic_ms() - began_ms)


def collect_garbage_seldom() -> None:
    """What the start has made stays to the end; the collector need not look at it again."""
    gc.freeze()
    gc.set_threshold(ALLOCATIONS_PER_COLLECTION)


async def _give_up(starting: "asyncio.Future[Broker]", name: str, clock: SystemClock) -> None:
    """A broker that waits for the others of its cluster, perhaps for ever, stops as any other."""
    tell(BROKER_STOPPING, signal=name)
    began_ms = clock.monotonic_ms()
    starting.cancel()
    with suppress(asyncio.CancelledError):
        broker = await starting
        await broker.stop()  # it was there after all
    tell(BROKER_STOPPED, took_ms=clock.monotonic_ms() - began_ms)


async def _start(settings: Settings, filesystem: OsFilesystem, clock: SystemClock) -> Broker:
    advertise = settings.advertise or Address("", 0)
    try:
        return await Broker.start(
            BrokerSettings(
                data_directory=settings.data_dir,
                node_id=settings.node_id,
                host=settings.kafka.host,
                port=settings.kafka.port,
                advertised_host=advertise.host,
                advertised_port=advertise.port,
                connections_max=room_for_connections(),
                http=(settings.http.host, settings.http.port) if settings.http else None,
                grpc=(settings.grpc.host, settings.grpc.port) if settings.grpc else None,
                offset_store=_offset_store(settings),
                assignors=_assignors(settings),
                configs=settings.configs,
                cluster_id=settings.cluster_id,
                peers={each: None if peer is None else (peer.host, peer.port) for each, peer in settings.peers.items()},
                discovery=settings.discovery,
                cluster_secret=settings.cluster_secret,
            ),
            filesystem=filesystem,
            clock=clock,
            rng=random.SystemRandom(),
            on_error=Troubles(clock).note,
        )
    except CannotListen as refusal:
        address = settings.http if refusal.setting == "http" else settings.grpc
        assert address is not None
        why = _why_not_listening(refusal.error, address, refusal.setting)
        why = why or f"cannot listen on {address}: {refusal.error}; choose another address with --{refusal.setting}"
        raise CannotStart(f"{why}, or switch it off with --{refusal.setting} off") from refusal
    except StorageError as error:
        raise CannotStart(f"cannot open the data directory {settings.data_dir}: {error}") from error
    except OSError as error:
        raise CannotStart(_why_not(error, settings)) from error


def _offset_store(settings: Settings) -> OffsetStore | None:
    if settings.offset_store is None:
        return None
    from millpond.app.plugins import load_offset_store  # noqa: PLC0415 - looking for packages takes a while

    return load_offset_store(settings.offset_store)


def _assignors(settings: Settings) -> dict[str, Assignor]:
    """Those of other packages that the settings name."""
    foreign = [name for name in assignor_names(settings.configs) if name not in ASSIGNORS]
    if not foreign:
        return {}
    from millpond.app.plugins import load_assignor  # noqa: PLC0415 - looking for packages takes a while

    return {name: load_assignor(name) for name in foreign}


def room_for_connections() -> int:
    """Half of the files this process may open at most: the other half is for logs, which must be able to roll."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return min(NetworkLimits().connections_max, files // 2)


def _why_not(error: OSError, settings: Settings) -> str:
    return _why_not_listening(error, settings.kafka, "kafka") or (
        f"cannot use the data directory {settings.data_dir}: {error}; correct that, or give another with --data-dir"
    )


def _why_not_listening(error: OSError, address: Address, setting: str) -> str | None:
    """None where it is not the address."""
    if error.errno == errno.EADDRINUSE:
        return f"{address} is taken by another program; stop that one, or choose another port with --{setting}"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"{address} is no address of this machine; give one that is with --{setting}"
    if error.errno in (errno.EACCES, errno.EPERM) and error.filename is None:
        return f"this user may not listen on {address}; choose a port from 1024 on with --{setting}"
    return None


def _tell_started(settings: Settings, broker: Broker, out: TextIO) -> None:
    address = Address(settings.kafka.host, broker.port)
    http = Address(settings.http.host, broker.http_port) if settings.http and broker.http_port else None
    grpc = Address(settings.grpc.host, broker.grpc_port) if settings.grpc and broker.grpc_port else None
    logs = [(str(partition.at), partition.log) for partition in broker.node.partitions]
    summary = RecoverySummary.of(logs)
    if settings.log_format is LogFormat.TEXT and out.isatty():
        # What draws on terminals is slow to load, and machines have none.
        from millpond.app.banner import show_banner  # noqa: PLC0415

        show_banner(
            out,
            address=str(address),
            http=str(http) if http else None,
            grpc=str(grpc) if grpc else None,
            data_dir=settings.data_dir,
            summary=summary,
        )
    else:
        tell(
            BROKER_STARTED,
            version=__version__,
            address=str(address),
            host=address.host,
            port=address.port,
            http=str(http or "off"),
            grpc=str(grpc or "off"),
            node_id=settings.node_id,
            pid=os.getpid(),
            data_dir=settings.data_dir,
            partitions=summary.logs,
            recovery=str(summary),
            logs_unclean=summary.logs_unclean,
            bytes_scanned=summary.bytes_scanned,
            bytes_cut=summary.bytes_cut,
        )
    summary.tell_each(logs)
    if not address.is_loopback:
        tell(OPEN_TO_EVERYBODY, address=str(address))
    if http is not None and not http.is_loopback:
        tell(HTTP_OPEN_TO_EVERYBODY, address=str(http))
    if grpc is not None and not grpc.is_loopback:
        tell(OPEN_TO_EVERYBODY, address=str(grpc))


class _Signals:
    """Set up with plain handlers rather than the loop's, so that a second signal is heard while the loop is busy."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()
        self._first: signal.Signals | None = None
        for each in stop_signals():
            signal.signal(each, self._heard)

    def _heard(self, number: int, _frame: object) -> None:
        if self._first is not None:
            os._exit(128 + number)
        self._first = signal.Signals(number)
        self._loop.call_soon_threadsafe(self._asked.set)

    async def wait(self) -> str:
        await self._asked.wait()
        assert self._first is not None
        return self._first.name
