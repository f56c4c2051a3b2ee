"""What was met lately, by a key that others choose: so many at most, the oldest is forgotten. Pure."""

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(dict[Key, Value]):
    __slots__ = ("_count_max",)

    def __init__(self, *, count_max: int) -> None:
        super().__init__()
        self._count_max = count_max

    def remember(self, key: Key, value: Value) -> None:
        """As the newest, also where the key was known."""
        self.pop(key, None)
        while len(self) >= self._count_max:
            del self[next(iter(self))]
        self[key] = value
