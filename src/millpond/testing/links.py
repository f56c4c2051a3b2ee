"""The wires between simulated hosts: how long they take, what they lose, and which of them are cut.

Invariant: a link has a direction; what is true from a to b says nothing about b to a. A host always
reaches itself. All waiting of the network runs in a context of its own, so that bytes already on the
wire arrive even when their sender is killed.
State and seeded draws only. Asked by flows, datagrams and connects; changed by a scenario's faults.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Iterable
from typing import TypeVarTuple, Unpack

from millpond.model.values import dataclass
from millpond.testing.timed_loop import TimedLoop
from millpond.testing.trace import Trace

Arguments = TypeVarTuple("Arguments")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How one link behaves. The defaults are a data centre on an ordinary day."""

    delay_ms_min: float = 0.2
    delay_ms_max: float = 2.0
    tail_chance: float = 0.01
    """How often a packet is held up for longer, up to `tail_ms_max`."""
    tail_ms_max: float = 300.0
    loss_chance: float = 0.0
    """Of a lost datagram nothing is heard again; a lost segment is sent anew, and all behind it wait."""
    duplicate_chance: float = 0.0
    """Datagrams only; on a connection the receiver's kernel removes duplicates."""
    fragment_chance: float = 0.2
    """How often the bytes of one write are cut in two at a random place, and the second part again."""
    window_bytes: int = 64 * 1024
    """What may be on the wire and in the receiver's kernel together before the sender has to wait."""
    retransmit_ms_min: float = 200.0
    """The wait before the first retransmission; it doubles with each further one."""
    give_up_ms: float = 60_000.0
    """A connection with unacknowledged bytes dies after this much silence."""
    connect_give_up_ms: float = 20_000.0


class Links:
    def __init__(self, loop: TimedLoop, rng: random.Random, trace: Trace) -> None:
        self.loop = loop
        self.rng = rng
        self.trace = trace
        self.dark: set[str] = set()
        """Machines without power; nothing arrives there."""
        self._wire = contextvars.Context()
        self._everywhere = Conditions()
        self._between: dict[tuple[str, str], Conditions] = {}
        self._cut: set[tuple[str, str]] = set()
        self._isolated: set[str] = set()

    # --- Faults ----------------------------------------------------------------------------------

    def set_conditions(self, conditions: Conditions, *, source: str | None = None, target: str | None = None) -> None:
        """For the link from `source` to `target`, or for all links that were not set one by one."""
        if source is not None and target is not None:
            self._between[source, target] = conditions
        elif source is target:
            self._everywhere = conditions
        else:
            raise ValueError("name both ends of a link, or neither")

    def partition(self, left: str | Iterable[str], right: str | Iterable[str]) -> None:
        """Cuts every link between the two sides, both ways. Bytes stall; they are not lost."""
        for a in _names(left):
            for b in _names(right):
                self._cut |= {(a, b), (b, a)}
                self.trace.record("partition", left=a, right=b)

    def cut_one_way(self, *, source: str, target: str) -> None:
        """`target` hears nothing of `source` any more, while `source` still hears `target`."""
        self._cut.add((source, target))
        self.trace.record("cut one way", source=source, target=target)

    def isolate(self, host: str) -> None:
        """Cuts the host off from everybody, those that join later included."""
        self._isolated.add(host)
        self.trace.record("isolate", host=host)

    def heal(self, left: str | Iterable[str] | None = None, right: str | Iterable[str] | None = None) -> None:
        """Undoes every cut, or only those between two sides. Stalled bytes pass at their next retransmission."""
        if left is None or right is None:
            self._cut.clear()
            self._isolated.clear()
            self.trace.record("heal")
            return
        for a in _names(left):
            for b in _names(right):
                self._cut -= {(a, b), (b, a)}
                self.trace.record("heal", left=a, right=b)

    # --- Questions -------------------------------------------------------------------------------

    def conditions(self, source: str, target: str) -> Conditions:
        return self._between.get((source, target), self._everywhere) if self._between else self._everywhere

    def passes(self, source: str, target: str) -> bool:
        """Whether a packet gets through now. A dark source is no obstacle to what left it before."""
        if target in self.dark:
            return False
        if source == target or not (self._cut or self._isolated):
            return True
        return (source, target) not in self._cut and source not in self._isolated and target not in self._isolated

    def lost(self, source: str, target: str) -> bool:
        return self.rng.random() < self.conditions(source, target).loss_chance

    def delay_seconds(self, source: str, target: str) -> float:
        """One draw of how long a packet takes; two packets drawn apart may overtake each other."""
        return self.draw_delay_seconds(self.conditions(source, target))

    def draw_delay_seconds(self, conditions: Conditions) -> float:
        is_held_up = self.rng.random() < conditions.tail_chance
        longest_ms = conditions.tail_ms_max if is_held_up else conditions.delay_ms_max
        return self.rng.uniform(conditions.delay_ms_min, longest_ms) / 1000

    def at(
        self, when: float, action: Callable[[Unpack[Arguments]], object], *arguments: *Arguments
    ) -> asyncio.TimerHandle:
        return self.loop.call_at_true_time(when, action, *arguments, context=self._wire)


def _names(side: str | Iterable[str]) -> list[str]:
    return [side] if isinstance(side, str) else sorted(side)  # sets of names have an order of their own
