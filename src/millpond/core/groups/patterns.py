r"""Topic names by regular expression, in time proportional to the name: a client's pattern cannot stall a broker.

The syntax is the part of RE2's that names topics: literals, `.`, `[a-z]`, `[^...]`, `\d \w \s` and their capitals,
`( )`, `(?: )`, `|`, `* + ? {m} {m,} {m,n}` (lazy forms mean the same here), and `^ $ \A \z` which change nothing at
the ends, since a pattern has to match the whole name. Refused, with the reason: what RE2 refuses too (backward
references, looking around, possessive repeats), flags, named groups and Unicode classes.

A pattern becomes a small automaton whose states are walked in parallel: no backtracking.
Invariant: at most STATES_MAX states, so a name of n characters costs at most n * STATES_MAX steps.
Pure; used by `consumer.py`.
"""

from collections.abc import Callable, Iterable

from millpond.model.values import dataclass

PATTERN_CHARS_MAX = 1_000
STATES_MAX = 4_000
REPEATS_MAX = 1_000
GROUPS_DEEP_MAX = 50

Accepts = Callable[[str], bool]
_CLASSES: dict[str, Accepts] = {
    "d": lambda char: "0" <= char <= "9",
    "w": lambda char: char == "_" or (char.isascii() and char.isalnum()),
    "s": lambda char: char in "\t\n\f\r ",
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class InvalidPattern(ValueError):
    """Not a pattern we can match; answered with INVALID_REGULAR_EXPRESSION."""


@dataclass(slots=True)
class _State:
    accepts: Accepts | None = None
    """Takes one character on to `then`; None takes none, and goes to each of `then` at once."""
    then: tuple[int, ...] = ()


_Piece = tuple[int, int]
"""First and last state of a part."""


class TopicPattern:
    __slots__ = ("_first", "_last", "_states", "text")

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARS_MAX:
            raise InvalidPattern(f"the pattern has {len(text)} characters; {PATTERN_CHARS_MAX} are allowed")
        self.text = text
        builder = _Builder(text)
        self._first, self._last = builder.build()
        self._states = builder.states

    def matches(self, name: str) -> bool:
        here = self._closure((self._first,))
        for char in name:
            here = self._closure(
                state.then[0]
                for state in (self._states[index] for index in here)
                if state.accepts is not None and state.accepts(char)
            )
            if not here:
                return False
        return self._last in here

    def _closure(self, start: Iterable[int]) -> set[int]:
        reached = set(start)
        todo = list(reached)
        while todo:
            state = self._states[todo.pop()]
            if state.accepts is None:
                fresh = [each for each in state.then if each not in reached]
                reached.update(fresh)
                todo += fresh
        return reached


class _Builder:
    """Reads the pattern once, left to right; alternatives hold sequences hold repeated atoms."""

    def __init__(self, text: str) -> None:
        self.states: list[_State] = []
        self._text = text
        self._at = 0
        self._deep = 0

    def build(self) -> _Piece:
        piece = self._alternatives()
        if self._at < len(self._text):
            raise InvalidPattern(f"')' at {self._at} closes nothing")
        return piece

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise InvalidPattern("the pattern ends too early")
        self._at += 1
        return char

    def _state(self, accepts: Accepts | None = None, *then: int) -> int:
        if len(self.states) >= STATES_MAX:
            raise InvalidPattern("the pattern is too large; shorten its repeats")
        self.states.append(_State(accepts, then))
        return len(self.states) - 1

    def _join(self, source: int, target: int) -> None:
        self.states[source].then += (target,)

    def _alternatives(self) -> _Piece:
        first, last = self._state(), self._state()
        while True:
            start, end = self._sequence()
            self._join(first, start)
            self._join(end, last)
            if self._peek() != "|":
                return first, last
            self._at += 1

    def _sequence(self) -> _Piece:
        first = last = self._state()
        while self._peek() not in {"", "|", ")"}:
            start, end = self._repeated()
            self._join(last, start)
            last = end
        return first, last

    def _repeated(self) -> _Piece:
        begin = self._at
        piece = self._atom()
        end = self._at
        while (bounds := self._bounds()) is not None:
            piece = self._repeat(begin, end, piece, *bounds)
            if self._peek() == "+":
                raise InvalidPattern(f"possessive repeat at {self._at} is not supported")
            if self._peek() == "?":
                self._at += 1
            if self._peek() in {"*", "+", "?", "{"}:
                raise InvalidPattern(f"repeat of a repeat at {self._at}; put the first in ( )")
        return piece

    def _bounds(self) -> tuple[int, int | None] | None:
        char = self._peek()
        if char in _REPEATS and char:
            self._at += 1
            return _REPEATS[char]
        if char != "{":
            return None
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, self._at)].partition(",")
        if end < 0 or not least.isdecimal() or (most and not most.isdecimal()):
            raise InvalidPattern(f"'{{' at {self._at} begins no repeat; write \\{{ for the character")
        self._at = end + 1
        low = int(least)
        high = (int(most) if most else None) if comma else low
        if low > REPEATS_MAX or (high is not None and not low <= high <= REPEATS_MAX):
            raise InvalidPattern(f"repeat {{{least}{comma}{most}}} is out of order or above {REPEATS_MAX}")
        return low, high

    def _repeat(self, begin: int, end: int, piece: _Piece, low: int, high: int | None) -> _Piece:
        """The first round is built already; more of them read the same part of the pattern again."""
        first = last = self._state()
        rounds = max(low, 1) if high is None else high
        after = self._state()
        for number in range(rounds):
            start, stop = piece if number == 0 else self._again(begin, end)
            if number >= low:
                self._join(last, after)
            self._join(last, start)
            if high is None and number == rounds - 1:
                self._join(stop, start)
            last = stop
        self._join(last, after)
        return first, after

    def _again(self, begin: int, end: int) -> _Piece:
        resume, self._at = self._at, begin
        piece = self._atom()
        assert self._at == end
        self._at = resume
        return piece

    def _atom(self) -> _Piece:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return self._one(self._set())
        if char == ".":
            return self._one(lambda each: each != "\n")
        if char == "\\":
            return self._escape()
        if char in {"^", "$"}:
            return self._edge(char)
        if char in {"*", "+", "?", "{"}:
            raise InvalidPattern(f"'{char}' at {self._at - 1} repeats nothing")
        return self._one(char.__eq__)

    def _one(self, accepts: Accepts) -> _Piece:
        last = self._state()
        return self._state(accepts, last), last

    def _edge(self, char: str) -> _Piece:
        """An anchor away from its edge could never match; at its edge it says what holds anyway."""
        at_start = self._text[: self._at - 1].strip("(?:|^") == ""
        at_end = self._text[self._at :].strip(")|$") == ""
        if not (at_start if char == "^" else at_end):
            raise InvalidPattern(f"'{char}' at {self._at - 1} is inside the pattern, where it cannot match")
        state = self._state()
        return state, state

    def _group(self) -> _Piece:
        if self._peek() == "?":
            if not self._text.startswith("?:", self._at):
                raise InvalidPattern(f"'(?' at {self._at - 1} is not supported; only (?: is")
            self._at += 2
        self._deep += 1
        if self._deep > GROUPS_DEEP_MAX:
            raise InvalidPattern(f"groups are more than {GROUPS_DEEP_MAX} deep")
        piece = self._alternatives()
        if self._take() != ")":
            raise AssertionError("alternatives end at ')' or at the end")
        self._deep -= 1
        return piece

    def _escape(self) -> _Piece:
        char = self._take()
        if char in {"A", "z"}:
            state = self._state()
            return state, state
        return self._one(self._escaped(char))

    def _escaped(self, char: str) -> Accepts:
        if char.lower() in _CLASSES:
            accepts = _CLASSES[char.lower()]
            return accepts if char.islower() else lambda each: not accepts(each)
        if char.isalnum() and char not in _ESCAPES:
            raise InvalidPattern(f"\\{char} is not supported")
        return _ESCAPES.get(char, char).__eq__

    def _set(self) -> Accepts:
        negated = self._peek() == "^"
        self._at += negated
        parts: list[Accepts] = []
        while not (self._peek() == "]" and parts):
            char = self._take()
            if char == "[" and self._peek() == ":":
                raise InvalidPattern("classes such as [:alpha:] are not supported")
            if char == "\\":
                escaped = self._take()
                if escaped.lower() in _CLASSES or (escaped.isalnum() and escaped not in _ESCAPES):
                    parts.append(self._escaped(escaped))
                    continue
                char = _ESCAPES.get(escaped, escaped)
            parts.append(self._span(char))
        self._at += 1
        accepting = tuple(parts)
        return lambda each: any(accepts(each) for accepts in accepting) is not negated

    def _span(self, low: str) -> Accepts:
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in {"]", ""}:
            return low.__eq__
        self._at += 1
        high = self._take()
        if high == "\\":
            high = self._take()
        if high < low:
            raise InvalidPattern(f"range {low}-{high} is out of order")
        return lambda each: low <= each <= high
