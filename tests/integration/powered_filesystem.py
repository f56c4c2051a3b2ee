"""The real file system, as a machine with a power switch sees it: without power, no sync ever says yes.

A forced shutdown of ext4 differs from a power cut in one point. An fdatasync that is under way at that moment may
return success though its bytes are lost, which plain system calls show as well (a few times in a hundred). On a
machine without power nobody would hear that answer; so here nobody does.

Driven by power_cuts.py.
"""

import errno
import os

from millpond.storage.filesystem import OsFile, OsFilesystem
from tests.machine.ext4_image import Ext4Image


class PoweredFile(OsFile):
    __slots__ = ("_image",)

    def __init__(self, fd: int, image: Ext4Image) -> None:
        super().__init__(fd)
        self._image = image

    def sync(self) -> None:
        super().sync()
        _check_power(self._image)


class PoweredFilesystem(OsFilesystem):
    def __init__(self, image: Ext4Image) -> None:
        super().__init__(image.root)
        self.image = image

    def open(self, path: str, *, create: bool = False) -> OsFile:
        return PoweredFile(self.open_descriptor(path, create=create), self.image)

    def open_descriptor(self, path: str, *, create: bool) -> int:
        return os.open(self._at(path), os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o640)

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        _check_power(self.image)


def _check_power(image: Ext4Image) -> None:
    if not image.has_power:
        raise OSError(errno.EIO, "the power went before the answer came")
