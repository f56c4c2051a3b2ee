"""The simulated disk against the real one: whatever is done to both, both answer alike, as long as no power is cut."""

import errno
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millpond.model.ports import File, Filesystem
from millpond.storage.filesystem import OsFilesystem
from millpond.testing.disk import SimDisk

PATHS = st.sampled_from(["a", "b", "a/x", "a/y", "b/x", "a/x/z", "a/x/w"])
POSITIONS = st.integers(0, 1500)
CHUNKS = st.lists(
    st.builds(lambda byte, size: bytes([byte]) * size, st.integers(1, 255), st.integers(0, 700)), max_size=3
)
PICKS = st.integers(0, 1 << 16)

T = TypeVar("T")


def outcome(call: Callable[[], T]) -> T | str:
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


class BothDisks(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="both-disks-")
        self.real = OsFilesystem(self.root)
        self.simulated = SimDisk(random.Random(1))
        self.handles: list[tuple[File, File]] = []

    def teardown(self) -> None:
        for real, simulated in self.handles:
            real.close()
            simulated.close()
        assert self.simulated.open_files == 0
        shutil.rmtree(self.root)

    def both(self, call: Callable[[Filesystem], T]) -> None:
        assert outcome(lambda: call(self.simulated)) == outcome(lambda: call(self.real))

    def both_files(self, pick: int, call: Callable[[File], T]) -> None:
        real, simulated = self.handles[pick % len(self.handles)]
        assert outcome(lambda: call(simulated)) == outcome(lambda: call(real))

    @rule(path=PATHS, create=st.booleans())
    def open(self, path: str, create: bool) -> None:
        real = outcome(lambda: self.real.open(path, create=create))
        simulated = outcome(lambda: self.simulated.open(path, create=create))
        if isinstance(real, str) or isinstance(simulated, str):
            assert real == simulated
        else:
            self.handles.append((real, simulated))

    @rule(path=PATHS)
    def make_directory(self, path: str) -> None:
        self.both(lambda files: files.make_directory(path))

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: str, new: str) -> None:
        self.both(lambda files: files.rename(old, new))

    @rule(path=PATHS)
    def remove(self, path: str) -> None:
        self.both(lambda files: files.remove(path))

    @rule(path=PATHS)
    def remove_directory(self, path: str) -> None:
        self.both(lambda files: files.remove_directory(path))

    @rule(path=PATHS)
    def sync_directory(self, path: str) -> None:
        self.both(lambda files: files.sync_directory(path))

    @precondition(lambda self: self.handles)
    @rule(pick=PICKS, position=POSITIONS, chunks=CHUNKS)
    def write(self, pick: int, position: int, chunks: list[bytes]) -> None:
        self.both_files(pick, lambda file: file.write(position, chunks))

    @precondition(lambda self: self.handles)
    @rule(pick=PICKS, position=POSITIONS, size=POSITIONS)
    def read(self, pick: int, position: int, size: int) -> None:
        self.both_files(pick, lambda file: file.read(position, size))

    @precondition(lambda self: self.handles)
    @rule(pick=PICKS, size=POSITIONS)
    def truncate(self, pick: int, size: int) -> None:
        self.both_files(pick, lambda file: file.truncate(size))

    @precondition(lambda self: self.handles)
    @rule(pick=PICKS)
    def sync(self, pick: int) -> None:
        self.both_files(pick, lambda file: file.sync())

    @precondition(lambda self: self.handles)
    @rule(pick=PICKS)
    def map(self, pick: int) -> None:
        self.both_files(pick, lambda file: bytes(file.map()))

    @precondition(lambda self: self.handles)
    @rule(pick=PICKS)
    def close(self, pick: int) -> None:
        self.both_files(pick, lambda file: file.close())

    @rule()
    def a_crash_that_loses_nothing_changes_nothing(self) -> None:
        for real, simulated in self.handles:
            real.close()
            simulated.close()
        self.handles.clear()
        self.simulated.crash("keep")

    @invariant()
    def names_sizes_and_contents_agree(self) -> None:
        for real, simulated in self.handles:
            assert outcome(simulated.size) == outcome(real.size)
        for path in ("", "a", "b", "a/x"):
            self.both(partial(_names_in, path))
        for path in ("a", "b", "a/x", "a/y", "b/x", "a/x/z"):
            self.both(partial(_existence_of, path))
            if not os.path.isdir(os.path.join(self.root, path)):
                self.both(partial(_content_of, path))
        assert self.simulated.used_bytes == sum(
            os.path.getsize(os.path.join(directory, name))
            for directory, _, names in os.walk(self.root)
            for name in names
        )


def _names_in(path: str, files: Filesystem) -> list[str]:
    return files.list(path)


def _existence_of(path: str, files: Filesystem) -> bool:
    return files.exists(path)


def _content_of(path: str, files: Filesystem) -> bytes:
    file = files.open(path)
    try:
        return file.read(0, files.size(path))
    finally:
        file.close()


TestBothDisks = BothDisks.TestCase
TestBothDisks.settings = settings(max_examples=40, stateful_step_count=40, database=None)
