"""What the HTTP door answered, counted as it happens.

Driven by api/http.
"""

from collections import Counter


class HttpFacts:
    __slots__ = ("answered", "connections_open")

    def __init__(self) -> None:
        self.answered: Counter[int] = Counter()
        """By status."""
        self.connections_open = 0
