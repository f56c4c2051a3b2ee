"""A follower's fetch, while it waits for something to copy.

On one connection a broker asks one thing at a time: when its next question comes, such as for a partition that it has
only just been given, the one that waits is of no use to anybody, and is answered at once, with nothing, to let the new
one through. Kept in the connection's `Session` (doorkeeper.py); driven by the handler of fetches and by
operations/fetch.py.
"""

import asyncio


class Question:
    __slots__ = ("is_replaced", "waiter")

    def __init__(self) -> None:
        self.is_replaced = False
        self.waiter: asyncio.Future[None] | None = None
        """What it waits on, while it does."""

    def replace(self) -> None:
        self.is_replaced = True
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
