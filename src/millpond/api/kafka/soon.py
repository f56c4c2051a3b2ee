"""An answer that a callback makes: for requests that wait for a sync, which lets very many go at once.

A task for each of them would be a quarter of what a produce request costs (docs/decisions/0024).
Made by handlers; driven by dispatch.py.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from millpond.protocol.messages.fields import Message


class Soon(Struct, frozen=True):
    wait: Callable[[Callable[[object], None]], bool]
    """Has something called once, when it is time to `make` the answer; False where it is time now."""
    make: Callable[[], Message | Awaitable[Message]]
    """The answer, or an awaitable for it where it takes longer after all."""
