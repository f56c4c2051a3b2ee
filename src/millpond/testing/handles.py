"""What a simulated loop hands out for a callback that is to come: asyncio's handles, made for millions of them.

Invariant: the callback of a handle that was cancelled is let go of, and never runs.
State only. Made by `TimedLoop`, run by `SimLoop`, and kept by a `Life` that may not run for now.
"""

import contextvars
from collections.abc import Callable
from typing import Any, Protocol


class Timers(Protocol):
    def timer_cancelled(self, timer: "Timer") -> None: ...


class Call:
    """A handle of `call_soon`: what asyncio's own has, less what only its debug mode looks at."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context")

    def __init__(
        self, callback: Callable[..., object], arguments: tuple[Any, ...], context: contextvars.Context | None
    ) -> None:
        self._callback = callback
        self._args = arguments
        self._cancelled = False
        self._context = contextvars.copy_context() if context is None else context

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _nothing, ()  # which may hold on to much

    def cancelled(self) -> bool:
        return self._cancelled


class Timer(float):
    """A handle of `call_at` that is the moment at which it rings: a heap compares them without a call into Python."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_loop", "_scheduled")
    _args: tuple[Any, ...]
    _callback: Callable[..., object]
    _cancelled: bool
    _context: contextvars.Context
    _loop: "Timers"
    _scheduled: bool

    def __bool__(self) -> bool:
        return True  # also one that rings at zero

    def when(self) -> float:
        return float(self)

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._loop.timer_cancelled(self)
            self._callback, self._args = _nothing, ()

    def cancelled(self) -> bool:
        return self._cancelled


def _nothing() -> None:
    """What is called of a handle that was cancelled."""
