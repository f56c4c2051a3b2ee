"""Group commit: one sync at a time, off the loop, shared by everyone whose bytes were there before it began.

While one sync runs, those who append meanwhile gather for the next; so the busier a log is, the more appends each
sync carries, and nobody ever waits for more than two. A round begins when those who come together have gathered.

Invariant: whoever `join` or `after_round` lets go has had a whole round begin after what it waits for was written.
Between two rounds, and never beside one, `turn` lets somebody else have the files.
Driven by log.py; waits only through the running loop, so the simulator runs it as it is.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from millpond.model.errors import StorageError
from millpond.storage.gathering import Gathering
from millpond.storage.turn import Turn


class Round(Protocol):
    """What there was to sync when the round began."""

    def start(self, ended: "Ended") -> bool:
        """On the loop: has it done without a thread, and `ended` called then; False where that needs `run`."""

    def run(self) -> None:
        """Blocks; in a thread. Raises StorageError where the promise cannot be kept."""

    def finish(self) -> None:
        """On the loop, once it has run, before anyone who waited goes on."""


Ended = Callable[[Exception | None], None]
"""Is told what went wrong in a round, if anything did."""


class GroupCommit:
    __slots__ = ("_begin", "_gathering", "_is_wanted", "_running", "_waiting", "turn")

    def __init__(self, begin: Callable[[], Round]) -> None:
        """`begin` runs on the loop; it may raise StorageError where there can be no more rounds."""
        self._begin = begin
        self._waiting: list[Ended] = []
        self._is_wanted = False
        """There will be a round, and it has not begun."""
        self._gathering = Gathering()
        self._running: list[Ended] | None = None
        """Who waits for the round that runs now; None while none does."""
        self.turn = Turn()

    def join(self, *, covered: bool = False) -> "asyncio.Future[None]":
        """Done when a round that began after this call has ended; with what went wrong in it, if anything did.

        With `covered`, the round that runs now will do, if one does: the caller knows that it began late enough.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.after_round(partial(_settle, waiter), covered=covered)
        return waiter

    def after_round(self, ended: Ended, *, covered: bool = False) -> None:
        """The same for who needs no future: all who wait for a round are called in one go. `ended` may not raise."""
        if covered and self._running is not None:
            self._running.append(ended)
        else:
            self._waiting.append(ended)
            self.request()

    def request(self) -> None:
        """Wants a round soon, and waits for none."""
        if not self._is_wanted:
            self._is_wanted = True
            self._gathering.begin()
            asyncio.get_running_loop().call_soon(self.turn.take, self._gather)

    def hurry(self) -> None:
        """The round that is wanted need not wait for more to come."""
        self._gathering.hurry()

    def _gather(self) -> None:
        if self._gathering.is_over(len(self._waiting)):
            self._run()
        else:
            asyncio.get_running_loop().call_soon(self._gather)

    def _run(self) -> None:
        """Without a task, which would cost as much as the rest: there may be thousands of rounds a second."""
        self._is_wanted = False  # who comes from now on needs another round
        self._running, self._waiting = self._waiting, []
        try:
            this_round = self._begin()
            if this_round.start(partial(self._ran, this_round)):
                return
            running = asyncio.get_running_loop().run_in_executor(None, this_round.run)
        except Exception as error:
            self._end(error)
        else:
            running.add_done_callback(lambda running: self._ran(this_round, running.exception()))

    def _ran(self, this_round: Round, failure: BaseException | None) -> None:
        try:
            if failure is not None:
                raise failure
            this_round.finish()
        except Exception as error:  # whatever it was, nobody is left waiting for ever
            self._end(error)
        else:
            self._end(None)

    def _end(self, failure: Exception | None) -> None:
        waiting, self._running = self._running or [], None
        self.turn.release()
        for ended in waiting:
            ended(failure)
        if failure is not None and not isinstance(failure, StorageError):
            raise failure  # a bug of ours


def _settle(waiter: "asyncio.Future[None]", failure: Exception | None) -> None:
    if waiter.cancelled():
        return
    if failure is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(failure)
