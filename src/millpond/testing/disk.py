"""A disk in memory, as unkind as POSIX allows: it loses, tears and reorders whatever was not synced.

Invariant: what a sync has acknowledged survives every crash (unless the disk was told to lie or rot), and the same
seed with the same calls gives the same disk, byte for byte.
Driven by tests and by the simulator; the code under test sees only the `Filesystem` port.

    disk = SimDisk(random.Random(seed))
    disk.cut_power_at(17)          # the 17th change from now is cut short and raises PowerCut, as does all after it
    try: scenario(disk)
    except PowerCut: pass
    disk.crash()                   # now the disk holds what a real one might; old handles are dead
    recover(disk)

What is durable when:

    content   by `File.sync`; un-synced writes survive wholly, partly, by sector or not at all (disk_contents.py)
    names     by `sync_directory`; of the un-synced changes of a directory the first so many survive (disk_names.py).
              A file without a durable name is gone even if its content was synced; a file whose removal was not
              durable is back
    a failed  sync drops what was pending for good: reads still see it, later syncs succeed without writing it.
              A failed sync_directory drops nothing, because a journal that cannot write stops the file system

Counted as operations, and so possible places for a power cut, is all that changes something: create, write, sync,
truncate, rename, remove, make_directory, remove_directory (each name in it by itself) and sync_directory.
"""

import errno
from collections.abc import Callable, Sequence

from millpond.model.ports import Buffer, Rng
from millpond.testing.disk_contents import Contents, CrashMode
from millpond.testing.disk_faults import Fault, Machine, Operation, PowerCut, failure
from millpond.testing.disk_names import Directory, Names, Node, split

__all__ = ["CrashMode", "Fault", "Operation", "PowerCut", "SimDisk", "SimFile"]


class SimDisk:
    """A `Filesystem`. There is one root, so a path with a leading `/` and one without mean the same."""

    def __init__(
        self,
        rng: Rng,
        *,
        capacity_bytes: int | None = None,
        spend: Callable[[float], None] | None = None,
        trace: Callable[..., None] | None = None,
    ) -> None:
        self.crash_mode: CrashMode = "random"
        """For crashes that do not name their own."""
        self._machine = Machine(rng, capacity_bytes=capacity_bytes, spend=spend, trace=trace)
        self._names = Names()

    # What a test does to the disk

    @property
    def operations(self) -> int:
        """Changes attempted so far."""
        return self._machine.operations

    @property
    def open_files(self) -> int:
        """Handles not closed yet; those of before a crash do not count."""
        return self._machine.open_files

    @property
    def used_bytes(self) -> int:
        """The sizes of all files that have a name, holes included."""
        return self._machine.used_bytes

    @property
    def capacity_bytes(self) -> int | None:
        """How far `used_bytes` may grow before writes meet ENOSPC; None for ever."""
        return self._machine.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, capacity_bytes: int | None) -> None:
        self._machine.capacity_bytes = capacity_bytes

    @property
    def lie_about_sync(self) -> bool:
        """A drive that acknowledges flushes without doing them: syncs succeed and make nothing durable."""
        return self._machine.sync_lies

    @lie_about_sync.setter
    def lie_about_sync(self, lies: bool) -> None:
        self._machine.sync_lies = lies

    def cut_power_at(self, operation_number: int) -> None:
        """Cuts short the operation with this number, counted from now; 1 is the next."""
        assert operation_number >= 1, "the next operation is number 1"
        self._machine.cut_at = self._machine.operations + operation_number

    def crash(self, mode: CrashMode | None = None) -> None:
        """The power goes and comes back: un-synced changes meet their fate, open handles are dead."""
        with self._machine.lock:
            self._machine.restore_power()
            self._names.root.crash(self._machine.rng, mode or self.crash_mode)
            self._machine.used_bytes = sum(len(file.current) for file in self._names.root.files())

    def end_process(self) -> None:
        """The process is killed: its handles and maps are gone, while the machine keeps all that was written."""
        with self._machine.lock:
            self._machine.drop_handles()
            for contents in self._names.root.files():
                contents.drop_maps()

    @property
    def on_power_cut(self) -> Callable[[], None] | None:
        """Called when a cut set by `cut_power_at` strikes, before anyone meets `PowerCut`: to end a machine's life."""
        return self._machine.on_power_cut

    @on_power_cut.setter
    def on_power_cut(self, callback: Callable[[], None] | None) -> None:
        self._machine.on_power_cut = callback

    def fail(
        self,
        operation: Operation,
        *,
        error: int = errno.EIO,
        path_pattern: str = "*",
        after: int = 0,
        times: int | None = 1,
    ) -> Fault:
        """Makes matching operations fail: `after` of them pass, then `times` of them (None: all) raise `error`.

        The pattern is a shell's, against the path without a leading `/`, and its `*` matches `/` too. A file is known
        by the path it was opened with. What fails leaves nothing behind, except a write: a drawn part of it happens.
        """
        fault = Fault(operation, error, path_pattern, after, times)
        self._machine.faults.append(fault)
        return fault

    def slow_sync(self, seconds_min: float, seconds_max: float) -> None:
        """Every sync spends a drawn time, through the `spend` the disk was made with."""
        self._machine.sync_seconds = (seconds_min, seconds_max)

    def heal(self) -> None:
        """Forgets the planned failures, the slowness and the lie; what they did stays done."""
        self._machine.faults.clear()
        self._machine.sync_seconds = (0.0, 0.0)
        self._machine.sync_lies = False

    def rot(self, path: str, *, position: int | None = None, bit: int | None = None) -> tuple[int, int]:
        """Flips one bit, at a drawn place where none is named, and says which: position and bit."""
        with self._machine.lock:
            contents = self._names.file(path)
            position = self._machine.rng.randrange(0, len(contents.current)) if position is None else position
            bit = self._machine.rng.randrange(0, 8) if bit is None else bit
            contents.rot(position, bit)
            return position, bit

    # What the code under test does with it

    def open(self, path: str, *, create: bool = False) -> "SimFile":
        with self._machine.lock:
            path = "/".join(split(path))
            self._machine.look("open", path)
            if create:
                parent, name = self._names.parent(path)
                if name not in parent.entries:
                    self._machine.change("create", path, lambda: parent.change((name, Contents())))
            contents = self._names.file(path)
            self._machine.open_files += 1
            return SimFile(path, contents, self._machine)

    def exists(self, path: str) -> bool:
        with self._machine.lock:
            self._machine.require_power()
            try:
                self._names.find(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def size(self, path: str) -> int:
        with self._machine.lock:
            self._machine.require_power()
            return len(self._names.file(path).current)

    def list(self, directory: str) -> list[str]:
        with self._machine.lock:
            self._machine.look("list", "/".join(split(directory)))
            return sorted(self._names.directory(directory).entries)

    def make_directory(self, path: str) -> None:
        with self._machine.lock:
            self._machine.require_power()
            parent = self._names.root
            names = split(path)
            for depth, name in enumerate(names, start=1):
                node = parent.entries.get(name)
                if node is None:
                    node = self._make_one_directory(parent, name, "/".join(names[:depth]))
                elif not isinstance(node, Directory):
                    raise failure(errno.EEXIST if depth == len(names) else errno.ENOTDIR, path)
                parent = node

    def _make_one_directory(self, parent: Directory, name: str, path: str) -> Directory:
        made = Directory()
        self._machine.change("make_directory", path, lambda: parent.change((name, made)))
        return made

    def rename(self, source: str, target: str) -> None:
        with self._machine.lock:
            self._machine.require_power()
            if split(source)[:-1] != split(target)[:-1]:
                raise failure(errno.EXDEV, source, target)
            parent, source_name = self._names.parent(source)
            target_name = split(target)[-1]
            if (moved := parent.entries.get(source_name)) is None:
                raise failure(errno.ENOENT, source, target)
            replaced = parent.entries.get(target_name)
            if replaced is moved:
                return
            if (refusal := _refusal_to_replace(replaced, moved)) is not None:
                raise failure(refusal, source, target)

            def effect() -> None:
                self._unlink(replaced)
                parent.change((source_name, None), (target_name, moved))

            self._machine.change("rename", "/".join(split(source)), effect, "/".join(split(target)))

    def remove(self, path: str) -> None:
        with self._machine.lock:
            self._machine.require_power()
            parent, name = self._names.parent(path)
            contents = self._names.file(path)

            def effect() -> None:
                self._unlink(contents)
                parent.change((name, None))

            self._machine.change("remove", "/".join(split(path)), effect)

    def remove_directory(self, path: str) -> None:
        """Name by name, in an order as arbitrary as a real directory's; a power cut may leave half of it."""
        with self._machine.lock:
            self._machine.require_power()
            parent, name = self._names.parent(path)
            directory = self._names.directory(path)
            names = sorted(directory.entries)
            while names:
                child = names.pop(self._machine.rng.randrange(0, len(names)))
                if isinstance(directory.entries[child], Directory):
                    self.remove_directory(f"{path}/{child}")
                else:
                    self.remove(f"{path}/{child}")
            self._machine.change("remove_directory", "/".join(split(path)), lambda: parent.change((name, None)))

    def sync_directory(self, path: str) -> None:
        with self._machine.lock:
            self._machine.require_power()
            directory = self._names.directory(path)
            effect = _nothing if self._machine.sync_lies else directory.sync
            self._machine.change("sync_directory", "/".join(split(path)), effect)
        self._machine.spend_on_sync()

    def _unlink(self, node: Node | None) -> None:
        if isinstance(node, Contents):
            node.linked = False
            self._machine.used_bytes -= len(node.current)


def _nothing() -> None:
    """The effect of a sync that lies."""


def _refusal_to_replace(replaced: Node | None, moved: Node) -> int | None:
    """The error number rename(2) gives, or None where it allows."""
    if replaced is None or (isinstance(replaced, Contents) and isinstance(moved, Contents)):
        return None
    if isinstance(replaced, Contents):
        return errno.ENOTDIR
    if isinstance(moved, Contents):
        return errno.EISDIR
    return errno.ENOTEMPTY if replaced.entries else None


class SimFile:
    """A `File`: a handle that dies with the crash of its disk. Only closing it never fails."""

    __slots__ = ("_boot", "_closed", "_contents", "_machine", "_path")

    def __init__(self, path: str, contents: Contents, machine: Machine) -> None:
        self._path = path
        self._contents = contents
        self._machine = machine
        self._boot = machine.boot
        self._closed = False

    def size(self) -> int:
        with self._machine.lock:
            self._require_alive()
            return len(self._contents.current)

    def read(self, position: int, size: int) -> bytes:
        with self._machine.lock:
            self._require_alive()
            self._require_not_negative(position, size)
            self._machine.look("read", self._path, position, size)
            return bytes(self._contents.current[position : position + size])

    def write(self, position: int, chunks: Sequence[Buffer]) -> int:
        data = bytes(chunks[0]) if len(chunks) == 1 else b"".join(chunks)
        with self._machine.lock:
            self._require_alive()
            self._require_not_negative(position)
            interruption = self._machine.interruption("write", self._path, position, len(data))
            if interruption is not None:
                written = self._machine.rng.randrange(0, len(data) + 1)
            else:
                written = min(len(data), max(0, self._end_max() - position))
                if written < len(data):
                    interruption = failure(errno.ENOSPC, self._path)
            size_before = len(self._contents.current)
            self._contents.write(position, data[:written])
            self._account(size_before)
            if interruption is not None:
                raise interruption
            return written

    def sync_soon(self, ended: Callable[[OSError | None], None]) -> bool:
        return False  # syncs take a thread here, which has a time of its own

    def sync(self) -> None:
        with self._machine.lock:
            self._require_alive()
            interruption = self._machine.interruption("sync", self._path, len(self._contents.pending))
            if isinstance(interruption, OSError):
                self._contents.fail_sync()
            elif not self._machine.sync_lies and (interruption is None or self._machine.rng.random() < 0.5):
                self._contents.sync()
            if interruption is not None:
                raise interruption
        self._machine.spend_on_sync()

    def truncate(self, size: int) -> None:
        with self._machine.lock:
            self._require_alive()
            self._require_not_negative(size)
            size_before = len(self._contents.current)
            if size > self._end_max():
                raise failure(errno.ENOSPC, self._path)
            self._machine.change("truncate", self._path, lambda: self._contents.truncate(size), size)
            self._account(size_before)

    def reserve(self, start: int, size: int) -> None:
        """Bytes cost nothing here before they are written."""

    def map(self, size: int | None = None) -> memoryview:
        with self._machine.lock:
            self._require_alive()
            self._machine.look("map", self._path)
            return self._contents.map(size)

    def close(self) -> None:
        with self._machine.lock:
            if not self._closed and self._boot == self._machine.boot:
                self._machine.open_files -= 1
            self._closed = True

    def _require_alive(self) -> None:
        self._machine.require_power()
        if self._boot != self._machine.boot:
            raise failure(errno.EIO, self._path)
        if self._closed:
            raise failure(errno.EBADF, self._path)

    def _require_not_negative(self, *numbers: int) -> None:
        if min(numbers) < 0:
            raise failure(errno.EINVAL, self._path)

    def _end_max(self) -> int:
        """How far the file may reach before the disk is full."""
        return len(self._contents.current) + self._machine.room_bytes()

    def _account(self, size_before: int) -> None:
        if self._contents.linked:
            self._machine.used_bytes += len(self._contents.current) - size_before
