"""A data directory belongs to one process at a time.

The file `lock` in it is locked with flock(2) and holds the owner's process id, for people. The kernel lets go of the
lock when the process ends, however it ends, so that nothing is ever to be cleaned up by hand.
Invariant: between `lock` and `unlock` no other Millpond process opens a log below the directory.
Driven by process.py and by `millpond.testing`.
"""

import fcntl
import os

from millpond.app.refusals import CannotStart

LOCK = "lock"
_PID_BYTES_MAX = 20


class DataDirectory:
    def __init__(self, path: str, descriptor: int) -> None:
        """Use `DataDirectory.lock`."""
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def lock(cls, path: str) -> "DataDirectory":
        """Makes the directory where there is none. Never waits."""
        try:
            os.makedirs(path, exist_ok=True)
            descriptor = os.open(f"{path}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise CannotStart(
                f"cannot use the data directory {path}: {error.strerror}; "
                "give one that this user may write to with --data-dir"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            owner = _owner(descriptor)
            os.close(descriptor)
            raise CannotStart(
                f"the data directory {path} is in use by another broker{owner}; stop that one first, "
                "or give this one its own with --data-dir"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise CannotStart(
                f"cannot lock the data directory {path}: {error.strerror}; "
                "give one on a local disk with free space with --data-dir"
            ) from None
        return cls(path, descriptor)

    def unlock(self) -> None:
        """The file stays: removing it would let two processes lock two files of one name."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.ftruncate(descriptor, 0)
            os.close(descriptor)


def _owner(descriptor: int) -> str:
    text = os.pread(descriptor, _PID_BYTES_MAX, 0)
    return f", process {text.decode()}" if text.isdigit() else ""
