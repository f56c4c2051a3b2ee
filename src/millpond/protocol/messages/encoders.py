"""Writes the function that encodes one class at one version: straight lines, no look at the declaration at run time.

Neighbouring fields of fixed size become one `Struct.pack`; the length of what follows them joins in, and so do the
elements of an array of integers, and before a response the number of its request. Nested structs stand in the same
function, as loops.

Invariant: what is pending is written before control flow can leave the block it was collected in.
Pure. Driven by compiler.py.
"""

import struct
from collections.abc import Callable
from itertools import groupby
from typing import Any, Final

from millpond.model.ports import Buffer
from millpond.protocol.messages.fields import Field, Kind, fields_of
from millpond.protocol.messages.source import Source

VIEW_BYTES_MIN: Final = 4096
"""Records shorter than this are joined with what stands around them: a copy is cheaper than one more buffer to send."""
FUSED_INTS_MAX: Final = 127
"""Arrays of integers shorter than this are packed together with their length."""
WHOLE: Final = ""
"""Stands in the place of a struct code for bytes that need no packing."""


class IntPacks(dict[int, Callable[..., bytes]]):
    """`pack` for a prefix and `n` integers, made on first use; at most `FUSED_INTS_MAX` of them."""

    def __init__(self, prefix: str, code: str) -> None:
        super().__init__()
        self._prefix = prefix
        self._code = code

    def __missing__(self, count: int) -> Callable[..., bytes]:
        pack = struct.Struct(f"!{self._prefix}{count}{self._code}").pack
        self[count] = pack
        return pack


def uvarint(value: int) -> bytes:
    """Seven bits a byte, lowest first, the top bit set on all but the last."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_NAMES: Final[dict[str, object]] = {
    "uvarint": uvarint,
    "BYTES": tuple(bytes((value,)) for value in range(0x80)),
    "join": b"".join,
    "pack": struct.pack,
    "VIEW_BYTES_MIN": VIEW_BYTES_MIN,
}


class EncoderWriter:
    def __init__(self, *, version: int, is_flexible: bool) -> None:
        self._version = version
        self._is_flexible = is_flexible
        self._source = Source(_NAMES)
        self._has_records = False
        self._pending: list[tuple[str, str]] = []
        """Struct codes, and the expression each one packs; the expression of a pad byte is empty."""
        self._out = "out"
        """Name of the list that takes the next piece; another inside a tagged field."""

    def compile(self, declared: type[Any]) -> Callable[[Any], list[Buffer]]:
        return self._compile(declared, "encode(m)", f"{declared.__name__} v{self._version} encode")

    def compile_response(self, declared: type[Any], *, is_tagged: bool) -> Callable[[Any, int], list[Buffer]]:
        """With the header before the message: the request's number, and room for tagged fields where there is any."""
        self._pending = [("i", "number"), ("x", "")] if is_tagged else [("i", "number")]
        return self._compile(declared, "encode(m, number)", f"{declared.__name__} v{self._version} respond")

    def _compile(self, declared: type[Any], signature: str, title: str) -> Callable[..., list[Buffer]]:
        source = self._source
        with source.block(f"def {signature}:"):
            source.put("parts = []", "out = []")
            self._struct(declared, "m")
            self._flush()
            if self._has_records:
                with source.block("if out:"):
                    source.put("parts.append(join(out))")
                source.put("return parts")
            else:
                source.put("return [join(out)]")
        return source.compile("encode", title)

    def _struct(self, declared: type[Any], var: str) -> None:
        fields = [field for field in fields_of(declared) if field.is_in(self._version)]
        for field in fields:
            if field.tag is None:
                self._field(field, f"{var}.{field.name}")
        if self._is_flexible:
            tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
            if tagged:
                self._tags(tagged, var)
            else:
                self._pending.append(("x", ""))

    def _field(self, field: Field, expression: str) -> None:
        if field.kind.is_fixed and not field.is_array:
            self._fixed(field.kind, expression)
        elif field.is_nullable(self._version) and field.tag is None:
            self._nullable(field, expression)
        else:
            self._present(field, expression)

    def _fixed(self, kind: Kind, expression: str) -> None:
        if kind is Kind.UUID:  # struct would cut or fill up any other length in silence
            self._source.put(f"assert len({expression}) == 16")
        self._pending.append((kind.value, expression))

    def _nullable(self, field: Field, expression: str) -> None:
        value = self._source.fresh("v")
        self._source.put(f"{value} = {expression}")
        before = self._pending
        with self._source.block(f"if {value} is None:"):
            self._pending = [*before, self._null(field)]
            self._flush()
        with self._source.block("else:"):
            self._pending = list(before)
            if field.kind is Kind.STRUCT and not field.is_array:
                self._pending.append(("b", "1"))
            self._present(field, value)
            self._flush()

    def _null(self, field: Field) -> tuple[str, str]:
        if field.kind is Kind.STRUCT and not field.is_array:
            return "b", "-1"
        if self._is_flexible:
            return "x", ""
        return ("h" if field.kind is Kind.STRING and not field.is_array else "i"), "-1"

    def _present(self, field: Field, expression: str) -> None:
        """A value that is not None, or one that need not be looked at."""
        if field.is_array:
            self._array(field, expression)
        elif field.kind is Kind.STRUCT:
            assert field.of is not None
            value = self._source.fresh("m")
            self._source.put(f"{value} = {expression}")
            self._struct(field.of, value)
        elif field.kind is Kind.RECORDS:
            self._records(expression)
        else:
            self._string(field.kind, expression)

    def _string(self, kind: Kind, expression: str) -> None:
        value = self._source.fresh("s")
        self._source.put(f"{value} = {expression}{'.encode()' if kind is Kind.STRING else ''}")
        self._length(value, "h" if kind is Kind.STRING else "i")
        self._pending.append((WHOLE, value))

    def _records(self, expression: str) -> None:
        self._has_records = True
        value = self._source.fresh("r")
        self._source.put(f"{value} = {expression}")
        self._length(value, "i", often_two_bytes=True)
        with self._source.block(f"if len({value}) < VIEW_BYTES_MIN:"):
            self._source.put(f"out.append({value})")
        with self._source.block("else:"):
            self._source.put("parts.append(join(out))", f"parts.append({value})", "out.clear()")

    def _length(self, value: str, code: str, *, often_two_bytes: bool = False) -> None:
        """The length of `value`, with all that was pending before it."""
        if not self._is_flexible:
            self._pending.append((code, f"len({value})"))
            self._flush()
            return
        count = self._source.fresh("n")
        self._source.put(f"{count} = len({value}) + 1")
        before = self._pending
        with self._source.block(f"if {count} < 128:"):
            self._pending = [*before, ("B", count)]
            self._flush()
        if often_two_bytes:
            with self._source.block(f"elif {count} < 16384:"):
                self._pending = [*before, ("B", f"{count} & 127 | 128"), ("B", f"{count} >> 7")]
                self._flush()
        with self._source.block("else:"):
            self._pending = [*before, (WHOLE, f"uvarint({count})")]
            self._flush()

    def _array(self, field: Field, expression: str) -> None:
        value = self._source.fresh("a")
        self._source.put(f"{value} = {expression}")
        if field.kind.is_fixed and field.kind is not Kind.UUID:
            self._ints(field.kind.value, value)
            return
        self._length(value, "i")
        item = self._source.fresh("m")
        with self._source.block(f"for {item} in {value}:"):
            if field.kind is Kind.STRUCT:
                assert field.of is not None
                self._struct(field.of, item)
            elif field.kind is Kind.UUID:
                self._fixed(field.kind, item)
            else:
                self._string(field.kind, item)
            self._flush()

    def _ints(self, code: str, value: str) -> None:
        """An array of integers in one pack with its length and what was pending."""
        if any(code == WHOLE for code, _ in self._pending):
            self._flush()
        count = self._source.fresh("n")
        self._source.put(f"{count} = len({value})")
        before, length = self._pending, ("B", f"{count} + 1") if self._is_flexible else ("i", count)
        fused = [*before, length]
        packs = self._source.bind("P", IntPacks("".join(code for code, _ in fused), code))
        arguments = ", ".join(expression for _, expression in fused if expression)
        with self._source.block(f"if {count} < {FUSED_INTS_MAX}:"):
            self._source.put(f"{self._out}.append({packs}[{count}]({arguments}, *{value}))")
        with self._source.block("else:"):
            prefix = f"uvarint({count} + 1)" if self._is_flexible else f"pack('!i', {count})"
            self._pending = [*before, (WHOLE, prefix), (WHOLE, f"pack(f'!{{{count}}}{code}', *{value})")]
            self._flush()

    def _tags(self, tagged: list[Field], var: str) -> None:
        source, outer, before = self._source, self._out, self._pending
        with source.block(f"if {' or '.join(_differs(field, var) for field in tagged)}:"):
            self._pending = list(before)
            self._flush()
            count, content = source.fresh("k"), source.fresh("t")
            source.put(f"{count} = 0", f"{content} = []")
            for field in tagged:
                self._out = piece = source.fresh("c")
                with source.block(f"if {_differs(field, var)}:"):
                    source.put(f"{piece} = []")
                    self._field(field, f"{var}.{field.name}")
                    self._flush()
                    source.put(f"{piece} = join({piece})", f"{count} += 1")
                    source.put(f"{content} += ({uvarint(field.tag or 0)!r}, uvarint(len({piece})), {piece})")
            self._out = outer
            source.put(f"{outer} += uvarint({count}), *{content}")
        with source.block("else:"):
            self._pending = [*before, ("x", "")]
            self._flush()

    def _flush(self) -> None:
        """Writes what is pending, neighbours of fixed size as one pack."""
        pending, self._pending = self._pending, []
        pieces: list[str] = []
        for is_whole, group in groupby(pending, key=lambda each: each[0] == WHOLE):
            some = list(group)
            pieces += [expression for _, expression in some] if is_whole else [self._packed(some)]
        if len(pieces) == 1:
            self._source.put(f"{self._out}.append({pieces[0]})")
        elif pieces:
            self._source.put(f"{self._out} += {', '.join(pieces)}")

    def _packed(self, fixed: list[tuple[str, str]]) -> str:
        """The expression for some values of fixed size."""
        if not any(expression for _, expression in fixed):
            return repr(bytes(len(fixed)))
        if len(fixed) == 1 and fixed[0][0] == "B":  # a short length alone
            return f"BYTES[{fixed[0][1]}]"
        pack = self._source.bind("S", struct.Struct("!" + "".join(code for code, _ in fixed)).pack)
        return f"{pack}({', '.join(expression for _, expression in fixed if expression)})"


def _differs(field: Field, var: str) -> str:
    """The condition under which a tagged field has to be written."""
    value = f"{var}.{field.name}"
    if field.default is None:
        return f"{value} is not None"
    if field.is_array:
        return value
    return f"{value} != {field.default!r}"
