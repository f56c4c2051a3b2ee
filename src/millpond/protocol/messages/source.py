"""Python source being written by the compiler: lines at their depth, and the objects they refer to by name.

Invariant: a name that `fresh` or `bind` gave is given once.
Pure. Driven by encoders.py and decoders.py.
"""

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """One function in the making."""

    def __init__(self, names: dict[str, object]) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._names = dict(names)
        self._counter = 0

    def put(self, *lines: str) -> None:
        self._lines.extend("    " * self._depth + line for line in lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is put meanwhile stands under `head`."""
        self.put(head)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.put("pass")
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """A local name nobody has yet."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def bind(self, prefix: str, value: object) -> str:
        """A global name for `value`."""
        name = self.fresh(prefix)
        self._names[name] = value
        return name

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def compile(self, function: str, title: str) -> Callable[..., Any]:
        """Runs the definition, as `dataclasses` does for the methods it makes. All text in it is ours."""
        text, filename = self.text(), f"<{title}>"
        exec(compile(text, filename, "exec"), self._names)
        # So that a traceback shows the line, and with it the field, that an encoder stumbled over.
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        made: Callable[..., Any] = self._names[function]  # type: ignore[assignment]
        return made
