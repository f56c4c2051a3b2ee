"""The seams: everything a Millpond process asks of its machine, apart from the network.

Waiting and sockets go through the running asyncio loop; time, chance and files go through these
protocols. Production wires the operating system behind them (`storage/filesystem.py`), tests wire
`millpond.testing`, and nothing else in the project knows which one it has.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview
"""Bytes that can be written without being copied first."""


class Clock(Protocol):
    def monotonic_ms(self) -> int:
        """For measuring and waiting; never goes back, means nothing to another process."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for stamps people and clients see; may jump."""


class Rng(Protocol):
    """Chance, as `random.Random` offers it."""

    def random(self) -> float: ...
    def uniform(self, a: float, b: float) -> float: ...
    def randrange(self, start: int, stop: int) -> int: ...
    def getrandbits(self, k: int) -> int: ...


class File(Protocol):
    """An open file. Every call blocks; `sync` may run in another thread beside reads and writes.

    Failures are `OSError`, as the operating system words them.
    """

    def size(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; shorter only where the file ends."""

    def write(self, position: int, chunks: Sequence[Buffer]) -> int:
        """Writes all chunks one after another and returns how many bytes that was.

        When it raises, some prefix may have been written already.
        """

    def sync(self) -> None:
        """Returns once the content and size written before the call survive a power cut.

        Says nothing of the file's name: that is `Filesystem.sync_directory`.
        After a failure nothing written since the last success may be assumed to be on disk, ever.
        """

    def sync_soon(self, ended: Callable[[OSError | None], None]) -> bool:
        """The same without a thread: calls `ended` on the running loop, with what went wrong if anything did.

        False, and no call, where the system cannot do that: `sync` can.
        """

    def truncate(self, size: int) -> None:
        """Cuts or extends with zeros. Must not shrink a file that was mapped: see `map`."""

    def reserve(self, start: int, size: int) -> None:
        """Asks for disk space for bytes that will come; what is written there then costs less. The size stays.

        Only a wish: it fails in silence. `truncate` to the present size gives back what was not used.
        """

    def map(self, size: int | None = None) -> memoryview:
        """The present content, or as much of it, read-only, without copying. Outlives `close`, rename and remove.

        Shrinking the file below a mapped byte kills whoever reads it; replace such a file instead.
        """

    def close(self) -> None: ...


class Filesystem(Protocol):
    """Files by path, `/` between names. Names become durable by `sync_directory` only."""

    def open(self, path: str, *, create: bool = False) -> File:
        """For reading and writing. `create` makes an empty file where none is; without it a missing file raises."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Makes the directory and those above it; one that is there already is fine."""

    def rename(self, source: str, target: str) -> None:
        """Atomically, within one directory, replacing the target."""

    def remove(self, path: str) -> None:
        """Removes a file."""

    def remove_directory(self, path: str) -> None:
        """Removes a directory and everything in it."""

    def sync_directory(self, path: str) -> None:
        """Returns once the names in this directory, as they are now, survive a power cut."""
