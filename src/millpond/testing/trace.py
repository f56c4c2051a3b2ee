"""What a simulation did, line by line: a fingerprint of all of it and the story of its end.

Invariant: two runs have equal hashes exactly when they recorded the same events, at the same virtual
moments, in the same order. So a replay can be told from a near miss by comparing 64 characters.
Pure but for the clock it is given. Driven by `SimLoop.trace` and by everything simulated.
"""

import hashlib
import marshal
from collections import deque
from collections.abc import Callable

Field = str | int | float | bool | None
"""Values that print the same in every process; an object's default repr would carry its address."""
_Event = tuple[int, str, tuple[Field | bytes, ...], dict[str, Field]]
"""When, of which kind, and what there is to say of it."""


EVENTS_PER_HASHING = 256
_MARSHAL_VERSION = 2
"""The last that writes equal values as equal bytes, whether or not they are one object."""


class Trace:
    def __init__(self, now_ns: Callable[[], int], *, lines_max: int = 200) -> None:
        self._now_ns = now_ns
        self._hash = hashlib.sha256()
        self._story: deque[_Event] = deque(maxlen=lines_max)
        self._unhashed: list[_Event] = []
        self._stopped = False
        self.events = 0

    def record(self, kind: str, /, *values: Field | bytes, **fields: Field) -> None:
        """Adds one event. Values that are bytes count for the hash; in the story they would only be noise."""
        if self._stopped:
            return
        self.events += 1
        event = (self._now_ns(), kind, values, fields)
        self._story.append(event)
        self._unhashed.append(event)
        if len(self._unhashed) >= EVENTS_PER_HASHING:
            self._hash_events()

    def stop(self) -> None:
        """Ignores what comes after, such as the burial of killed code when the loop is closed."""
        self._stopped = True

    def hash(self) -> str:
        self._hash_events()
        return self._hash.hexdigest()

    def _hash_events(self) -> None:
        for event in self._unhashed:
            self._hash.update(marshal.dumps(event, _MARSHAL_VERSION))
        self._unhashed.clear()

    def story(self, about: str = "") -> list[str]:
        """The last lines recorded, or those among them that contain `about`."""
        return [line for line in map(_told, self._story) if about in line]


def _told(event: _Event) -> str:
    now_ns, kind, values, fields = event
    words = [kind, *(str(value) for value in values if not isinstance(value, bytes))]
    words += [f"{name}={value}" for name, value in fields.items()]
    return f"{now_ns / 1e9:.9f} {' '.join(words)}"
