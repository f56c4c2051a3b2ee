"""What is kept of one queue's ledger: one document under way at a time, and what happens meanwhile goes with the next.

So the busier a queue is, the less each message pays. One is made when those who come together have gathered. Whoever
waits is called, rather than woken by a future: a sync lets very many go at once, and a task for each of them would cost
as much as the rest of its request.

Invariant: `then` is called once, when all that happened before `after_kept` is kept by all replicas in sync, or with
why it is not known to be. What one did may have gone with the document of another; so who has nothing to send waits for
that.
Driven by queue_partition.py.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from millpond.broker.drivers.states import StateKey, States
from millpond.core.delivery.encoding import encode, encode_whole
from millpond.core.delivery.ledger import Change, Ledger
from millpond.storage.gathering import Gathering

WHOLE_EVERY: Final = 100
WHOLE_BYTES: Final = 64 * 1024
"""A whole document is kept after so many changes, or so many bytes of them."""
WHOLE_CHANGES: Final = 10_000
"""Or instead of one that tells of so many: what is unfinished is bounded, and what has happened is not."""

Then = Callable[[Exception | None], None]
"""Is told why something was not kept, if it was not; may not raise."""


class QueueKeeper:
    def __init__(
        self, key: StateKey, epoch: int, states: States, *, on_failure: Callable[[Exception], Exception]
    ) -> None:
        """`on_failure` is told first where something could not be kept, and says what to tell those who wait."""
        self._key = key
        self._epoch = epoch
        self._states = states
        self._on_failure = on_failure
        self.ledger: Ledger | None = None
        # The first document, also of a group that is new, is a whole one.
        self._since_whole = WHOLE_EVERY
        self._bytes_since_whole = 0
        self._sent: list[Then] | None = None
        """Who waits for the document that is under way; None while none is."""
        self._unsent: list[Then] = []
        """Who waits for the next."""
        self._is_due = False
        self._gathering = Gathering()
        self.failure: Exception | None = None
        """Why nothing is kept any more."""

    def after_kept(self, then: Then, *, is_new: bool = False) -> bool:
        """False, and no call, where all that happened is kept. `is_new` where more than messages has changed."""
        assert self.ledger is not None
        waiting = self._sent
        if is_new or self.ledger.has_changes or (waiting is None and self._unsent):
            waiting = self._unsent
        if waiting is None:
            return False
        waiting.append(then)
        self._send_soon()
        return True

    def _send_soon(self) -> None:
        """Not at once: what others do in the same turn of the loop goes along."""
        if self._unsent and self._sent is None and not self._is_due:
            self._is_due = True
            self._gathering.begin()
            asyncio.get_running_loop().call_soon(self._gather)

    def _gather(self) -> None:
        if self._gathering.is_over(len(self._unsent)):
            self._send_next()
        else:
            asyncio.get_running_loop().call_soon(self._gather)

    def _send_next(self) -> None:
        assert self.ledger is not None
        self._is_due = False
        self._sent, self._unsent = self._unsent, []
        if self.failure is not None:
            self._ended(self.failure)
        else:
            self._send(self.ledger, self.ledger.take_changes())

    def _send(self, ledger: Ledger, changes: list[Change]) -> None:
        is_whole = (
            self._since_whole >= WHOLE_EVERY or self._bytes_since_whole >= WHOLE_BYTES or len(changes) >= WHOLE_CHANGES
        )
        try:
            document = encode_whole(ledger) if is_whole else encode(ledger, changes)
            self._since_whole = 0 if is_whole else self._since_whole + 1
            self._bytes_since_whole = 0 if is_whole else self._bytes_since_whole + len(document)
            self._states.keep_then(self._key, self._epoch, document, whole=is_whole, then=self._ended)
        except Exception as error:  # whatever it was, nobody is left waiting for ever
            self._ended(error)

    def _ended(self, error: Exception | None) -> None:
        if self._sent is None:
            return
        failure = None if error is None else self._on_failure(error)
        sent, self._sent = self._sent, None
        for then in sent:
            then(failure)
        self._send_soon()
