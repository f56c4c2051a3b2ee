"""A real ext4 file system in one file, whose power can be cut at any moment.

The image is mounted through a loop device. `cut_power` asks ext4 to stop as it is (EXT4_IOC_SHUTDOWN without flushing
its journal): from then on every write and sync fails, and what was not synced is gone. `restore_power` mounts the
image again, which replays the journal as a machine does when it starts.

`fill` leaves no room in it, until `free`.

Invariant: an image is unmounted, and its loop device free, after `close`, whatever happened before.
Needs root. Driven by tests/integration, one log at a time, and by the brokers of `make chaos`.
"""

import errno
import fcntl
import gc
import os
import struct
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.machine.programs import missing, run

_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32)"""
_WITHOUT_FLUSHING = struct.pack("I", 2)
_BALLAST_BYTES = (16 << 20, 1 << 20, 64 << 10, 4 << 10)
"""Steps in which the room is taken: first much at a time, then every block."""


class Ext4Image:
    def __init__(self, directory: Path, *, size_bytes: int) -> None:
        self._image = directory / "disk.img"
        self.root = directory / "disk"
        self.root.mkdir()
        with self._image.open("wb") as file:
            file.truncate(size_bytes)
        run("mkfs.ext4", "-q", "-F", str(self._image))
        self._root_fd = -1
        self._mount()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _mount(self) -> None:
        run("mount", "-t", "ext4", "-o", "loop", str(self._image), str(self.root))
        try:
            self._root_fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            run("umount", str(self.root))
            raise
        self.has_power = True

    def cut_power(self) -> None:
        """From any thread, also while another writes or syncs. A second cut changes nothing."""
        self.has_power = False  # first, so that whoever still sees it knows that no cut has begun
        fcntl.ioctl(self._root_fd, _SHUTDOWN, _WITHOUT_FLUSHING)

    def restore_power(self, *, attempts: int = 40) -> None:
        """Everybody must have closed their files.

        A process that has just entered a mount namespace of its own may hold the file system for a moment longer: then
        it is the dead one that is mounted again.
        """
        for attempt in range(attempts):
            self._unmount()
            self._mount()
            if self._is_alive():
                return
            time.sleep(0.01 * attempt)
        raise RuntimeError(f"{self.root} stays without power: somebody else has it mounted still")

    def _is_alive(self) -> bool:
        try:
            os.fsync(self._root_fd)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        return True

    def fill(self) -> None:
        """Takes every block that is left, also from whoever writes meanwhile. Nothing is written for it."""
        with (self.root / "ballast").open("wb") as file:
            for step in _BALLAST_BYTES:
                try:
                    while True:
                        os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        (self.root / "ballast").unlink(missing_ok=True)

    def _unmount(self, *, attempts: int = 40) -> None:
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1
        gc.collect()  # a map that only a cycle of objects still holds keeps the file system busy
        reason = ""
        for attempt in range(attempts):
            done = subprocess.run(["umount", str(self.root)], check=False, capture_output=True, text=True)
            if done.returncode == 0:
                return
            reason = done.stderr.strip()
            time.sleep(0.01 * attempt)
        raise RuntimeError(f"{self.root} stays busy: {reason}")

    def close(self) -> None:
        self._image.unlink(missing_ok=True)  # its bytes are freed with the mount
        if not os.path.ismount(self.root):
            return
        try:
            self._unmount(attempts=3)
        except RuntimeError:
            # A failed test's traceback may hold a map of a file. Gone from sight now, and for good with the last map.
            run("umount", "--lazy", str(self.root))


def why_no_image(directory: Path) -> str | None:
    """What this machine lacks for an `Ext4Image`; None where it lacks nothing."""
    if os.geteuid() != 0:
        return "real power cuts need root, to mount an ext4 image"
    if absent := missing("mkfs.ext4", "mount", "umount"):
        return f"real power cuts need {absent}"
    if not os.path.exists("/dev/loop-control"):
        return "real power cuts need loop devices; there is no /dev/loop-control"
    trial = directory / "trial"
    trial.mkdir()
    try:
        with Ext4Image(trial, size_bytes=8 << 20) as image:
            image.cut_power()
    except (OSError, RuntimeError) as error:
        return f"real power cuts need a mounted ext4 image that can be shut down: {error}"
    return None
