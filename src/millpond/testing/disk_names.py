"""The names on a simulated disk: a tree of directories, each with entries now and entries after a power cut.

Invariant: `durable` with every change of `pending` applied in order equals `entries`. A rename is one change, so no
crash splits it. A directory's name is an entry of its parent, and durable only when that one is synced.
Pure apart from the `Rng` handed in. Driven by testing/disk.py.
"""

import errno
from collections.abc import Iterator

from millpond.model.ports import Rng
from millpond.testing.disk_contents import Contents, CrashMode
from millpond.testing.disk_faults import failure


class Directory:
    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[_Change] = []

    def change(self, *edits: "tuple[str, Node | None]") -> None:
        """All edits or none after a crash; a name given None goes away."""
        _apply(self.entries, edits)
        self.pending.append(edits)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def crash(self, rng: Rng, mode: CrashMode) -> None:
        """A journal keeps the order, so the first so many changes survive; each directory has its own number."""
        if self.pending:
            whole = len(self.pending)
            kept = {"keep": whole, "lose": 0}.get(mode, -1)
            if kept < 0:
                kept = rng.randrange(0, whole + 1)
            for change in self.pending[:kept]:
                _apply(self.durable, change)
            self.pending.clear()
            self.entries = dict(self.durable)
        for node in self.entries.values():
            node.crash(rng, mode)

    def files(self) -> Iterator[Contents]:
        for node in self.entries.values():
            if isinstance(node, Directory):
                yield from node.files()
            else:
                yield node


Node = Contents | Directory
_Change = tuple[tuple[str, Node | None], ...]


def _apply(entries: dict[str, Node], change: _Change) -> None:
    for name, node in change:
        if node is None:
            del entries[name]
        else:
            entries[name] = node


class Names:
    """Finds nodes by path, with the errors Linux gives."""

    def __init__(self) -> None:
        self.root = Directory()

    def find(self, path: str) -> Node:
        node: Node = self.root
        for name in split(path):
            if not isinstance(node, Directory):
                raise failure(errno.ENOTDIR, path)
            try:
                node = node.entries[name]
            except KeyError:
                raise failure(errno.ENOENT, path) from None
        return node

    def directory(self, path: str) -> Directory:
        node = self.find(path)
        if not isinstance(node, Directory):
            raise failure(errno.ENOTDIR, path)
        return node

    def file(self, path: str) -> Contents:
        node = self.find(path)
        if isinstance(node, Directory):
            raise failure(errno.EISDIR, path)
        return node

    def parent(self, path: str) -> tuple[Directory, str]:
        """The directory that holds, or would hold, the last name of a path; and that name."""
        *above, name = split(path) or [""]
        if not name:
            raise failure(errno.EBUSY, path)
        directory = self.find("/".join(above))
        if not isinstance(directory, Directory):
            raise failure(errno.ENOTDIR, path)
        return directory, name


def split(path: str) -> list[str]:
    names = [name for name in path.split("/") if name and name != "."]
    assert ".." not in names, f"the simulated disk does not walk up: {path}"
    return names
