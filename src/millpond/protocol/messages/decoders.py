"""Writes the function that decodes one class at one version: straight lines, no look at the declaration at run time.

Neighbouring fields of fixed size, and the length or tag count behind them, become one `Struct.unpack_from`.

Invariant: no length a peer claims is believed before it was held against the bytes that are there, and nothing is
allocated beyond the size of the frame and what `ELEMENTS_MAX` structs take.
What `struct`, indexing and UTF-8 raise becomes a `MalformedMessage`. Pure. Driven by compiler.py.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from millpond.model.errors import MalformedMessage
from millpond.protocol.messages.fields import Field, Kind, fields_of
from millpond.protocol.messages.source import Source

UVARINT_BYTES_MAX: Final = 5
ELEMENTS_MAX: Final = 2_000_000
"""Most elements that all arrays of one message may have together. A wall: a struct of two bytes on the wire takes more
than a hundred in memory, so that the size of the frame alone bounds too little."""


def read_uvarint(buffer: memoryview | bytes, position: int) -> tuple[int, int]:
    """The number, and where it ends."""
    first = buffer[position]
    return (first, position + 1) if first < 0x80 else uvarint_rest(buffer, position + 1, first)


def uvarint_rest(buffer: memoryview | bytes, position: int, first: int) -> tuple[int, int]:
    """The number whose first byte, already read, says that there are more."""
    value = first & 0x7F
    for shift in range(7, 7 * UVARINT_BYTES_MAX, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedMessage(f"the number before byte {position} has more than {UVARINT_BYTES_MAX} bytes")


_NAMES: Final[dict[str, object]] = {
    "Malformed": MalformedMessage,
    "new": object.__new__,
    "read_uvarint": read_uvarint,
    "uvarint_rest": uvarint_rest,
    "unpack_from": struct.unpack_from,
    "struct_error": struct.error,
}


class DecoderWriter:
    def __init__(self, *, version: int, is_flexible: bool) -> None:
        self._version = version
        self._is_flexible = is_flexible
        self._source = Source(_NAMES)
        self._pending: list[tuple[str, str]] = []
        """Struct codes, and where the value of each goes."""

    def compile(self, declared: type[Any]) -> Callable[[memoryview | bytes, int], tuple[Any, int]]:
        source, title = self._source, f"{declared.__name__} v{self._version}"
        with source.block("def decode(b, p):"):
            source.put("start, limit = p, len(b)", f"left = {ELEMENTS_MAX}")
            with source.block("try:"):
                message = self._struct(declared)
                source.put(f"return {message}, p")
            with source.block("except (struct_error, IndexError):"):
                source.put(f"reason = f'{title} is cut short: it has {{limit - start}} bytes'")
            with source.block("except UnicodeDecodeError as error:"):
                source.put(f"reason = f'{title} has a string that is not UTF-8: {{error.reason}}'")
            source.put("raise Malformed(reason)")
        return source.compile("decode", f"{title} decode")

    def bytes_min(self, declared: type[Any]) -> int:
        """The fewest bytes one struct can have at this version."""
        sizes = [self._field_bytes_min(f) for f in fields_of(declared) if f.is_in(self._version) and f.tag is None]
        return max(1, sum(sizes) + self._is_flexible)

    def _field_bytes_min(self, field: Field) -> int:
        if field.is_array or field.kind in {Kind.DATA, Kind.RECORDS}:
            return 1 if self._is_flexible else 4
        return 1 if field.is_nullable(self._version) and self._is_flexible else self._item_bytes_min(field)

    def _item_bytes_min(self, field: Field) -> int:
        match field.kind:
            case Kind.STRUCT:
                assert field.of is not None
                return 1 if field.is_nullable(self._version) and not field.is_array else self.bytes_min(field.of)
            case Kind.STRING:
                return 1 if self._is_flexible else 2
            case Kind.DATA | Kind.RECORDS:
                return 1 if self._is_flexible else 4
            case _:
                return struct.calcsize("!" + field.kind.value)

    def _struct(self, declared: type[Any]) -> str:
        """Decodes a struct into a local name, which it returns."""
        self._flush()
        source, var = self._source, self._source.fresh("m")
        source.put(f"{var} = new({source.bind('C', declared)})")
        tagged = []
        for field in fields_of(declared):
            target = f"{var}.{field.name}"
            if not field.is_in(self._version):
                source.put(f"{target} = {self._default(field)}")
            elif field.tag is not None:
                source.put(f"{target} = {self._default(field)}")
                tagged.append((field, target))
            else:
                self._field(field, target, f"{declared.__name__}.{field.name}")
        if self._is_flexible:
            self._tags(tagged, declared.__name__)
        self._flush()
        return var

    def _default(self, field: Field) -> str:
        if field.is_array:
            return "None" if field.default is None else "[]"
        if field.kind is Kind.STRUCT and field.default is not None:
            assert field.of is not None
            return f"{self._source.bind('C', field.of)}()"
        return repr(field.default)

    def _field(self, field: Field, target: str, title: str) -> None:
        if field.is_array:
            self._array(field, target, title)
        elif field.kind.is_fixed:
            self._pending.append((field.kind.value, target))
        elif field.kind is Kind.STRUCT:
            self._inner_struct(field, target)
        else:
            self._string(field, target, title, is_nullable=field.is_nullable(self._version))

    def _inner_struct(self, field: Field, target: str) -> None:
        assert field.of is not None
        if not field.is_nullable(self._version) or field.tag is not None:
            self._source.put(f"{target} = {self._struct(field.of)}")
            return
        mark = self._source.fresh("n")
        self._pending.append(("b", mark))
        self._flush()
        with self._source.block(f"if {mark} < 0:"):
            self._source.put(f"{target} = None")
        with self._source.block("else:"):
            self._source.put(f"{target} = {self._struct(field.of)}")

    def _length(self, code: str, *, often_two_bytes: bool = False) -> str:
        """Reads a length, with all that was pending before it, into a local name: -1 for null."""
        count = self._source.fresh("n")
        if not self._is_flexible:
            self._pending.append((code, count))
            self._flush()
            return count
        self._pending.append(("B", count))
        self._flush()
        with self._source.block(f"if {count} > 127:"):
            if often_two_bytes:  # without a call
                with self._source.block("if b[p] < 128:"):
                    self._source.put(f"{count} += (b[p] << 7) - 128", "p += 1")
                self._source.put("else:", f"    {count}, p = uvarint_rest(b, p, {count})")
            else:
                self._source.put(f"{count}, p = uvarint_rest(b, p, {count})")
        self._source.put(f"{count} -= 1")
        return count

    def _null(self, count: str, target: str, title: str, *, is_nullable: bool) -> None:
        with self._source.block(f"if {count} < 0:"):
            if is_nullable:
                self._source.put(f"{target} = None")
            else:
                self._source.put(f"raise Malformed('{title} is null; it may not be in version {self._version}')")

    def _string(self, field: Field, target: str, title: str, *, is_nullable: bool) -> None:
        source, end = self._source, "e"
        count = self._length("h" if field.kind is Kind.STRING else "i", often_two_bytes=field.kind is Kind.RECORDS)
        self._null(count, target, title, is_nullable=is_nullable)
        with source.block("else:"):
            source.put(f"{end} = p + {count}")
            with source.block(f"if {end} > limit:"):
                source.put(f"raise Malformed(f'{title} claims {{{count}}} bytes; {{limit - p}} are left')")
            match field.kind:
                case Kind.STRING:
                    source.put(f"{target} = b[p:{end}].tobytes().decode()")
                case Kind.DATA:
                    source.put(f"{target} = bytes(b[p:{end}])")
                case _:
                    source.put(f"{target} = b[p:{end}]")
            source.put(f"p = {end}")

    def _array(self, field: Field, target: str, title: str) -> None:
        source, count = self._source, self._length("i")
        self._null(count, target, title, is_nullable=field.is_nullable(self._version))
        with source.block("else:"):
            item_bytes = self._item_bytes_min(field)
            with source.block(f"if {count} * {item_bytes} > limit - p:"):
                source.put(
                    f"raise Malformed(f'{title} claims {{{count}}} elements of at least {item_bytes} bytes; "
                    "{limit - p} bytes are left')"
                )
            source.put(f"left -= {count}")
            with source.block("if left < 0:"):
                source.put(f"raise Malformed('at {title} the message has more than {ELEMENTS_MAX} elements')")
            if field.kind.is_fixed and field.kind is not Kind.UUID:
                source.put(f"{target} = list(unpack_from(f'!{{{count}}}{field.kind.value}', b, p))")
                source.put(f"p += {count} * {item_bytes}")
                return
            items, index = source.fresh("l"), source.fresh("i")
            source.put(f"{items} = []")
            with source.block(f"for {index} in range({count}):"):
                source.put(f"{items}.append({self._item(field, title)})")
            source.put(f"{target} = {items}")

    def _item(self, field: Field, title: str) -> str:
        """Decodes one element of an array into a local name, which it returns."""
        if field.kind is Kind.STRUCT:
            assert field.of is not None
            return self._struct(field.of)
        item = self._source.fresh("x")
        if field.kind is Kind.UUID:
            self._pending.append((field.kind.value, item))
            self._flush()
        else:
            self._string(field, item, title, is_nullable=False)
        return item

    def _tags(self, tagged: list[tuple[Field, str]], owner: str) -> None:
        """Known tagged fields are taken, others passed over."""
        source, count, tag, size, end = self._source, *(self._source.fresh(prefix) for prefix in "kgze")
        self._pending.append(("B", count))
        self._flush()
        with source.block(f"if {count}:"):
            with source.block(f"if {count} > 127:"):
                source.put(f"{count}, p = uvarint_rest(b, p, {count})")
            with source.block(f"for {source.fresh('i')} in range({count}):"):
                source.put(f"{tag}, p = read_uvarint(b, p)", f"{size}, p = read_uvarint(b, p)", f"{end} = p + {size}")
                with source.block(f"if {end} > limit:"):
                    source.put(
                        f"raise Malformed(f'tag {{{tag}}} of {owner} claims {{{size}}} bytes; {{limit - p}} are left')"
                    )
                for field, target in tagged:
                    with source.block(f"if {tag} == {field.tag}:"):
                        self._field(field, target, f"{owner}.{field.name}")
                        self._flush()
                        with source.block(f"if p != {end}:"):
                            source.put(f"raise Malformed('{owner}.{field.name} has another size than its tag says')")
                source.put(f"p = {end}")

    def _flush(self) -> None:
        """Reads what is pending with one unpack."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        if pending[0][0] == "B":  # a length or count alone; nothing stands behind one
            self._source.put(f"{pending[0][1]} = b[p]", "p += 1")
            return
        layout = struct.Struct("!" + "".join(code for code, _ in pending))
        targets = ", ".join(target for _, target in pending) + ("," if len(pending) == 1 else "")
        self._source.put(f"{targets} = {self._source.bind('U', layout.unpack_from)}(b, p)", f"p += {layout.size}")
