"""Where the benchmark writes: a directory of its own on a real disk, gone afterwards. And what machine it runs on.

Invariant: nothing outside the directory is written, and the directory is removed however the run ends.
"""

import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.model.limits import GIB
from millpond.storage.filesystem import OsFile, OsFilesystem

_IN_MEMORY = ("tmpfs", "ramfs")
_BYTES_NEEDED = 6 * GIB
"""The storage engine takes half of that, the broker with all its peers nearly all."""
_SYNCS = 100


class CountingFile(OsFile):
    """Counts its syncs, so that the raw side can do as many."""

    __slots__ = ("_count",)

    def __init__(self, fd: int, count: list[int]) -> None:
        super().__init__(fd)
        self._count = count

    def sync(self) -> None:
        self._count[0] += 1
        super().sync()


class CountingFilesystem(OsFilesystem):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._count = [0]

    @property
    def syncs(self) -> int:
        return self._count[0]

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return CountingFile(os.open(self._at(path), flags, 0o640), self._count)


@dataclass(frozen=True, slots=True)
class Workspace:
    root: Path

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """An empty directory for one run of one side."""
        path = Path(tempfile.mkdtemp(dir=self.root))
        try:
            yield path
        finally:
            shutil.rmtree(path)


@contextmanager
def workspace(chosen: str | None) -> Iterator[Workspace]:
    above = Path(chosen) if chosen else _default_directory()
    free = shutil.disk_usage(above).free
    if free < _BYTES_NEEDED:
        raise SystemExit(
            f"{above} has {free / GIB:.1f} GB free, {_BYTES_NEEDED // GIB} are needed; choose another by --dir"
        )
    with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=above) as root:
        yield Workspace(Path(root))


def _default_directory() -> Path:
    """The usual place for temporary files, unless that is memory."""
    for each in (Path(tempfile.gettempdir()), Path.cwd()):
        if _file_system(each) not in _IN_MEMORY:
            return each
    return Path.cwd()


def machine_facts(place: Workspace) -> dict[str, Any]:
    file_system = _file_system(place.root)
    return {
        "cpus": os.cpu_count(),
        "cpu": _cpu_name(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "file_system": file_system,
        "is_disk": file_system not in _IN_MEMORY,
        "fdatasync_p50_us": round(_fdatasync_p50_us(place), 1),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _fdatasync_p50_us(place: Workspace) -> float:
    """Of appending one block and syncing it."""
    with place.directory() as directory:
        fd = os.open(directory / "file", os.O_CREAT | os.O_WRONLY)
        try:
            times = []
            for _ in range(_SYNCS):
                os.write(fd, bytes(4096))
                begin = time.perf_counter()
                os.fdatasync(fd)
                times.append(time.perf_counter() - begin)
        finally:
            os.close(fd)
    return statistics.median(times) * 1e6


def _file_system(path: Path) -> str:
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    found = "unknown"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            found = after.split()[0]
    return found


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
