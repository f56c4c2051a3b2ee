"""What a simulation did, line by line: a fingerprint of all of it and the story of its end.

Invariant: two runs have equal hashes exactly when they recorded the same events, at the same virtual
moments, in the same order. So a replay can be told from a near miss by comparing 64 characters.
Pure but for the clock it is given. Driven by `SimLoop.trace` and by everything simulated.
"""

import hashlib
from collections import deque
from collections.abc import Callable

Field = str | int | float | bool | None
"""Values that print the same in every process; an object's default repr would carry its address."""


class Trace:
    def __init__(self, now_ns: Callable[[], int], *, lines_max: int = 200) -> None:
        self._now_ns = now_ns
        self._hash = hashlib.sha256()
        self._story: deque[str] = deque(maxlen=lines_max)
        self._stopped = False
        self.events = 0

    def record(self, kind: str, /, *values: Field | bytes, **fields: Field) -> None:
        """Adds one event. Values that are bytes count for the hash; in the story they would only be noise."""
        if self._stopped:
            return
        self.events += 1
        words = [kind]
        for value in values:
            if isinstance(value, bytes):
                self._hash.update(b"%d:" % len(value))
                self._hash.update(value)
            else:
                words.append(str(value))
        words += [f"{name}={value}" for name, value in fields.items()]
        line = f"{self._now_ns() / 1e9:.9f} {' '.join(words)}"
        self._story.append(line)
        self._hash.update(line.encode() + b"\n")

    def stop(self) -> None:
        """Ignores what comes after, such as the burial of killed code when the loop is closed."""
        self._stopped = True

    def hash(self) -> str:
        return self._hash.hexdigest()

    def story(self, about: str = "") -> list[str]:
        """The last lines recorded, or those among them that contain `about`."""
        return [line for line in self._story if about in line]
