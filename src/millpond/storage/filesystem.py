"""The `Filesystem` port on Linux: thin sheets over the system calls, nothing cached, nothing retried.

Invariant: a call returns only after the operating system has said yes to all of it, or raises its `OSError`.
Driven by whatever was given a `Filesystem`; never imported by those that use one.

What each promise rests on:

    File.write       pwrite for one chunk, pwritev for several; repeated after a short write, which only a full
                     disk, a size limit or more than 2 GiB in one call produces. Where threads sync, a small chunk
                     goes out without letting go of Python's lock: see `_write_holding_on`
    File.read        pread until the size asked for or the end of the file
    File.sync        fdatasync: the content, and of the metadata what reading it back needs, which includes the
                     size and the block map but not the modification time. One journal commit less than fsync.
                     After EIO Linux marks the pages clean, so that a second fdatasync succeeds without having
                     written them: the caller must not retry
    File.reserve     fallocate, keeping the size: the blocks are there, unwritten, before the bytes come, which takes
                     a third off the cost of writing them. Python's own posix_fallocate would change the size
    File.map         mmap, shared and read-only; a read beyond the end of a file cut short since is a SIGBUS
    rename           rename(2): whoever looks sees the old file or the new one; which one a power cut leaves
                     is open until sync_directory
    sync_directory   fsync on the directory itself
"""

import ctypes
import errno
import mmap
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence

from millpond.model.ports import Buffer
from millpond.storage.kernel_syncs import KernelSyncs

_CHUNKS_PER_CALL_MAX = 1024
"""IOV_MAX on Linux: pwritev refuses more."""

_MODE = 0o640
"""Messages are not for every user of the machine; the umask may narrow this further."""


_KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE"""


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    found = getattr(ctypes.CDLL(None), "fallocate64", None)
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return found


_fallocate = _find_fallocate()
"""None where there is none, as with musl or on macOS."""

_HELD_BYTES_MAX = 4 * 1024
"""What the page cache takes in a microsecond."""


def _find_pwrite() -> Callable[[int, bytes, int, int], int] | None:
    found = getattr(ctypes.PyDLL(None), "pwrite64", None)
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64)
        found.restype = ctypes.c_ssize_t
    return found


_pwrite = _find_pwrite()
"""It holds on to Python's lock, unlike `os.pwrite`; None where there is none."""


def _write_holding_on(fd: int, chunk: Buffer, position: int) -> int:
    """For where syncs are made in threads: `os.pwrite` lets go of Python's lock, and a thread on its way to or from a
    sync wakes up to take it; but the write takes less time than waking, so it finds the lock taken again. With dozens
    of small writes in a row that happened dozens of times for each sync, and cost a tenth of a produce request or more.
    Where the kernel syncs by itself there is no such thread, and `os.pwrite` costs half as much as this.
    """
    written = -1 if _pwrite is None else _pwrite(fd, bytes(chunk), len(chunk), position)
    return written if written >= 0 else os.pwrite(fd, chunk, position)  # it also tells what is wrong


class OsFile:
    """A file descriptor. `sync` may run beside reads and writes; `close` must wait for all of them."""

    __slots__ = ("_fd", "_syncs")

    def __init__(self, fd: int, syncs: KernelSyncs | None = None) -> None:
        self._fd = fd
        self._syncs = syncs

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        pieces = [data]
        missing = size - len(data)
        while missing and (data := os.pread(self._fd, missing, position + size - missing)):
            pieces.append(data)
            missing -= len(data)
        return b"".join(pieces)

    def write(self, position: int, chunks: Sequence[Buffer]) -> int:
        if len(chunks) == 1:
            size = len(chunks[0])
            if size <= _HELD_BYTES_MAX and self._syncs is None:
                written = _write_holding_on(self._fd, chunks[0], position)
            else:
                written = os.pwrite(self._fd, chunks[0], position)
        else:
            size = sum(map(len, chunks))
            written = os.pwritev(self._fd, chunks[:_CHUNKS_PER_CALL_MAX], position)
        if written < size:
            self._write_rest(position, chunks, written)
        return size

    def _write_rest(self, position: int, chunks: Sequence[Buffer], written: int) -> None:
        """Carries on where a first system call stopped after `written` bytes."""
        waiting = [memoryview(chunk) for chunk in chunks if len(chunk)]
        first = 0
        while True:
            position += written
            while first < len(waiting) and written >= len(waiting[first]):
                written -= len(waiting[first])
                first += 1
            if first == len(waiting):
                return
            waiting[first] = waiting[first][written:]
            written = os.pwritev(self._fd, waiting[first : first + _CHUNKS_PER_CALL_MAX], position)
            if written == 0:
                raise OSError(errno.EIO, "the file takes no more bytes and gives no reason")

    def sync(self) -> None:
        if self._fd < 0:  # the one call here that Python checks itself, and answers with a ValueError
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        os.fdatasync(self._fd)

    def sync_soon(self, ended: Callable[[OSError | None], None]) -> bool:
        return self._syncs is not None and self._fd >= 0 and self._syncs.begin(self._fd, ended)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def reserve(self, start: int, size: int) -> None:
        if _fallocate is not None:
            _fallocate(self._fd, _KEEP_SIZE, start, size)

    def map(self, size: int | None = None) -> memoryview:
        there = os.fstat(self._fd).st_size
        size = there if size is None else min(size, there)
        if size == 0:
            return memoryview(b"")  # mmap refuses an empty range
        if sys.version_info >= (3, 13):
            # Without its own copy of the descriptor, so that a thousand mapped segments are not a thousand open files.
            return memoryview(mmap.mmap(self._fd, size, access=mmap.ACCESS_READ, trackfd=False))
        return memoryview(mmap.mmap(self._fd, size, access=mmap.ACCESS_READ))

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            warnings.warn(f"a file was dropped without being closed: {_name_of(self._fd)}", ResourceWarning, 2, self)
            self.close()


def _name_of(fd: int) -> str:
    """Where the system tells it; else only its number."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return f"descriptor {fd}"


class OsFilesystem:
    """Files below `root`; without one, paths mean what they mean to the process."""

    def __init__(self, root: str | os.PathLike[str] = "", *, syncs: KernelSyncs | None = None) -> None:
        """Without `syncs`, or where they do not do, a sync blocks."""
        self._root = os.fspath(root)
        self._syncs = syncs

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if self._root else path

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(self._at(path), flags, _MODE), self._syncs)

    def exists(self, path: str) -> bool:
        return os.path.exists(self._at(path))

    def size(self, path: str) -> int:
        return os.stat(self._at(path)).st_size

    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(self._at(directory)))

    def make_directory(self, path: str) -> None:
        os.makedirs(self._at(path), exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        if os.path.dirname(source) != os.path.dirname(target):
            # One sync_directory could not make both ends durable, and a power cut could leave both or neither.
            raise OSError(errno.EXDEV, "a rename stays within one directory", source, None, target)
        os.replace(self._at(source), self._at(target))

    def remove(self, path: str) -> None:
        os.unlink(self._at(path))

    def remove_directory(self, path: str) -> None:
        shutil.rmtree(self._at(path))

    def sync_directory(self, path: str) -> None:
        fd = os.open(self._at(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
