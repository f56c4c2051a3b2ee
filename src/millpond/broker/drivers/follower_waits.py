"""Followers whose fetches wait here for something to copy.

A broker asks one question at a time: when its next one comes, such as for a partition that it has only just been given,
the one that waits is of no use to anybody, and is answered at once, with nothing, to let the new one through.

Invariant: at most one question of a broker waits. Driven by the handler of fetches and by operations/fetch.py.
"""

import asyncio


class Question:
    """A follower's fetch, from when it came until it is answered."""

    __slots__ = ("is_replaced", "waiter")

    def __init__(self) -> None:
        self.is_replaced = False
        self.waiter: asyncio.Future[None] | None = None
        """What it waits on, while it does."""

    def replace(self) -> None:
        self.is_replaced = True
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class FollowerWaits:
    def __init__(self) -> None:
        self._newest: dict[int, Question] = {}

    def ask(self, broker: int) -> Question:
        before = self._newest.get(broker)
        if before is not None:
            before.replace()
        question = self._newest[broker] = Question()
        return question
