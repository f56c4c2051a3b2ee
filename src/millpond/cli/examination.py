"""What a broker needs of its machine, looked at one by one.

Invariant: looking changes nothing: what is written to see how fast the disk is, is removed. A fact that this machine
does not tell is `ok` and says so, since nothing is known against it.
Driven by doctor.py.
"""

import os
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Final, Literal

from millpond.app.clock import SystemClock
from millpond.app.settings import Settings
from millpond.cli import kernel_clock
from millpond.client.connection import BrokerConnection
from millpond.model.addresses import Address
from millpond.model.errors import InvalidSetting
from millpond.model.limits import GIB, KIB, MIB
from millpond.model.values import dataclass

State = Literal["ok", "warn", "fail"]

FREE_BYTES_FAIL, FREE_BYTES_WARN = 256 * MIB, 5 * GIB
OPEN_FILES_FAIL, OPEN_FILES_WARN = 1_024, 65_536
MAPS_WARN: Final = 262_144
MEMORY_FAIL, MEMORY_WARN = 128 * MIB, GIB
SYNCS: Final = 20
SYNC_MS_WARN: Final = 20.0
ANSWER_SECONDS_MAX: Final = 2.0
OLDEST_YEAR: Final = 2025
_PASSING: Final = {"tmpfs", "ramfs"}
_FOREIGN: Final = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"}


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    state: State
    found: str
    advice: str = ""

    def document(self) -> dict[str, object]:
        return asdict(self)


def examine(settings: Settings) -> Iterator[Finding]:
    yield look_at_python()
    yield look_at_port("kafka port", settings.kafka, "--kafka")
    if settings.http is not None:
        yield look_at_port("http port", settings.http, "--http")
    place = nearest_directory(settings.data_dir)
    yield look_at_directory(settings.data_dir, place)
    yield look_at_space(shutil.disk_usage(place), place)
    yield look_at_filesystem(_filesystem(place), place)
    yield look_at_syncs(place, time.perf_counter)
    yield look_at_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))
    yield look_at_maps(_number("/proc/sys/vm/max_map_count"))
    yield look_at_memory(_available_memory())
    yield look_at_clock(SystemClock().wall_ms(), is_synchronised=kernel_clock.is_synchronised())
    yield look_at_spark(has_spark=find_spec("pyspark") is not None, environ=os.environ)


def look_at_python() -> Finding:
    found = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    if find_spec("uvloop") is None:
        return Finding("python", "warn", f"{found} without uvloop", "pip install uvloop: a broker is faster with it")
    return Finding("python", "ok", f"{found} with uvloop")


def look_at_port(check: str, address: Address, option: str) -> Finding:
    if address.port == 0:
        return Finding(check, "ok", f"{address}: a free one is taken")
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((address.host, address.port))
            trial.listen()
    except OSError as error:
        if _answers(check, address):
            return Finding(check, "ok", f"{address}: a broker answers there already")
        return Finding(
            check,
            "fail",
            f"{address}: {error.strerror or error}",
            f"end what has it (ss -ltnp shows it), or give another address with {option}",
        )
    return Finding(check, "ok", f"{address} is free")


def _answers(check: str, address: Address) -> bool:
    import asyncio  # noqa: PLC0415
    import http.client  # noqa: PLC0415

    from millpond.model.errors import MillpondError  # noqa: PLC0415

    async def ask() -> None:
        opening = BrokerConnection.open(address, client_id="millpond-cli", seconds_max=ANSWER_SECONDS_MAX)
        (await opening).close()
        await asyncio.sleep(0)

    try:
        if check == "kafka port":
            asyncio.run(ask())
            return True
        asked = http.client.HTTPConnection(address.host, address.port, timeout=ANSWER_SECONDS_MAX)
        try:
            asked.request("GET", "/health")
            return asked.getresponse().status in (200, 503)
        finally:
            asked.close()
    except (MillpondError, OSError, http.client.HTTPException):
        return False


def nearest_directory(data_dir: str) -> Path:
    """Itself, or the one it would be made in."""
    path = Path(data_dir).absolute()
    while not path.is_dir():
        path = path.parent
    return path


def look_at_directory(data_dir: str, place: Path) -> Finding:
    is_there = Path(data_dir).absolute() == place
    found = str(place) if is_there else f"{data_dir} is not there yet; it would be made in {place}"
    if Path(data_dir).exists() and not is_there:
        return Finding("data directory", "fail", f"{data_dir} is no directory", "name a directory with --data-dir")
    if not os.access(place, os.W_OK | os.X_OK):
        advice = "let this user write there (chown, chmod), or name another with --data-dir"
        return Finding("data directory", "fail", f"{found}: not writable", advice)
    return Finding("data directory", "ok", found)


def look_at_space(usage: "shutil._ntuple_diskusage", place: Path) -> Finding:
    share = usage.free / max(1, usage.total)
    found = f"{_size(usage.free)} free of {_size(usage.total)} ({share:.0%})"
    if usage.free < FREE_BYTES_FAIL:
        return Finding(
            "disk space", "fail", found, f"make room on the disk of {place}, or name another with --data-dir"
        )
    if usage.free < FREE_BYTES_WARN or share < 0.05:
        advice = "make room, or keep less: retention.ms and retention.bytes of topics"
        return Finding("disk space", "warn", found, advice)
    return Finding("disk space", "ok", found)


def look_at_filesystem(kind: str | None, place: Path) -> Finding:
    if kind is None:
        return Finding("filesystem", "ok", "this machine does not tell")
    if kind in _PASSING:
        advice = "name a directory on a disk with --data-dir: this one is memory, and gone after a restart"
        return Finding("filesystem", "warn", kind, advice)
    if kind in _FOREIGN:
        advice = f"use a local disk: on {kind} neither locks nor syncs can be trusted"
        return Finding("filesystem", "warn", kind, advice)
    if kind == "overlay":
        advice = "mount a volume: the layer of a container is slow, and goes with it"
        return Finding("filesystem", "warn", kind, advice)
    return Finding("filesystem", "ok", kind)


def look_at_syncs(place: Path, clock: Callable[[], float]) -> Finding:
    try:
        sync_ms = _sync_ms(place, clock)
    except OSError as error:
        advice = "let this user write there, or name another directory with --data-dir"
        return Finding("disk sync", "fail", f"{place}: {error.strerror}", advice)
    found = f"{sync_ms:.2f} ms for 4 KiB and a sync, the median of {SYNCS}"
    if sync_ms > SYNC_MS_WARN:
        advice = "use a faster disk, best an SSD: every acknowledgement waits for one"
        return Finding("disk sync", "warn", found, advice)
    return Finding("disk sync", "ok", found)


def look_at_open_files(soft: int, hard: int) -> Finding:
    if soft == resource.RLIM_INFINITY:
        return Finding("open files", "ok", "without a limit")
    found = f"{soft} (at most {'any number' if hard == resource.RLIM_INFINITY else hard})"
    advice = f"ulimit -n {OPEN_FILES_WARN}, or LimitNOFILE={OPEN_FILES_WARN} for systemd"
    if soft < OPEN_FILES_FAIL:
        return Finding("open files", "fail", found, f"{advice}: segments and connections are files")
    if soft < OPEN_FILES_WARN:
        return Finding("open files", "warn", found, f"{advice}, for many partitions or clients")
    return Finding("open files", "ok", found)


def look_at_maps(maps_max: int | None) -> Finding:
    if maps_max is None:
        return Finding("memory maps", "ok", "this machine does not tell")
    if maps_max < MAPS_WARN:
        advice = f"sysctl -w vm.max_map_count={MAPS_WARN}, for many partitions: each segment that is read is a map"
        return Finding("memory maps", "warn", str(maps_max), advice)
    return Finding("memory maps", "ok", str(maps_max))


def look_at_memory(available: int | None) -> Finding:
    if available is None:
        return Finding("memory", "ok", "this machine does not tell")
    found = f"{_size(available)} available"
    if available < MEMORY_FAIL:
        return Finding("memory", "fail", found, "end other programs, or raise the limit of this container")
    if available < MEMORY_WARN:
        return Finding(
            "memory", "warn", found, "a broker wants some hundred MB, and the rest as cache for what is read"
        )
    return Finding("memory", "ok", found)


def look_at_clock(wall_ms: int, *, is_synchronised: bool | None) -> Finding:
    now = datetime.fromtimestamp(wall_ms / 1000, UTC)
    found = now.isoformat(timespec="seconds")
    if now.year < OLDEST_YEAR:
        return Finding("clock", "fail", found, "set the clock: retention and lag go by it")
    if is_synchronised is None:
        return Finding("clock", "ok", f"{found}, and this machine does not tell whether it is synchronised")
    if not is_synchronised:
        advice = "run chrony or systemd-timesyncd: timestamps, retention and lag go by the clock"
        return Finding("clock", "warn", f"{found}, not synchronised", advice)
    return Finding("clock", "ok", f"{found}, synchronised")


def look_at_spark(*, has_spark: bool, environ: Mapping[str, str]) -> Finding:
    """Only pipelines need it: a broker does without."""
    if not has_spark:
        return Finding("spark", "ok", "not installed; only millpond pipeline needs it: pip install 'millpond[spark]'")
    from millpond.pipeline.java import find_java  # noqa: PLC0415

    try:
        return Finding("spark", "ok", f"PySpark {version('pyspark')} on {find_java(environ)}")
    except InvalidSetting as error:
        return Finding("spark", "warn", "PySpark without a Java it can run on", str(error))


# Facts


def _sync_ms(place: Path, clock: Callable[[], float]) -> float:
    page = b"\0" * (4 * KIB)
    took: list[float] = []
    with tempfile.TemporaryFile(dir=place) as file:
        for number in range(SYNCS):
            started = clock()
            os.pwrite(file.fileno(), page, number * len(page))
            os.fdatasync(file.fileno())
            took.append((clock() - started) * 1000)
    return median(took)


def _filesystem(place: Path) -> str | None:
    """Of the mount that the place is under."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return None
    under = [each for each in mounts if place.is_relative_to(each[1])]
    return max(under, key=lambda each: len(each[1]))[2] if under else None


def _available_memory() -> int | None:
    """Of the machine, or of the container where that is less."""
    found: list[int] = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * KIB for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        pass
    limit, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        found.append(max(0, limit - used))
    return min(found, default=None)


def _number(path: str) -> int | None:
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"
