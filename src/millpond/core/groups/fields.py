"""Fields as Kafka's records have them: big-endian numbers, and texts and bytes with their length in front.

Pure; `offsets_format.py` and `subscriptions.py` are made of these. Reading never runs past the end: what is cut short
or lies about its length raises InvalidRecord.
"""

from struct import Struct

from millpond.model.errors import InvalidRecord

_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")


class FieldReader:
    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _number(self, form: Struct) -> int:
        (value,) = form.unpack(self._take(form.size))
        return int(value)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise InvalidRecord(f"{size} bytes are missing at {self._at} of {len(self._data)}")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def count(self) -> int:
        """Of an array; each of its entries takes a byte at least."""
        count = self.int32()
        if not 0 <= count <= len(self._data) - self._at:
            raise InvalidRecord(f"{count} entries do not fit the {len(self._data) - self._at} bytes that are left")
        return count

    def text_or_none(self) -> str | None:
        size = self.int16()
        if size == -1:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as wrong:
            raise InvalidRecord(f"no text at {self._at}: {wrong.reason}") from None

    def text(self) -> str:
        value = self.text_or_none()
        if value is None:
            raise InvalidRecord(f"a text is missing at {self._at}")
        return value

    def data(self) -> bytes:
        return self._take(self.int32())

    def rest(self) -> bytes:
        return self._take(len(self._data) - self._at)


class FieldWriter:
    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def int16(self, value: int) -> "FieldWriter":
        self._parts.append(_INT16.pack(value))
        return self

    def int32(self, value: int) -> "FieldWriter":
        self._parts.append(_INT32.pack(value))
        return self

    def int64(self, value: int) -> "FieldWriter":
        self._parts.append(_INT64.pack(value))
        return self

    def text(self, value: str | None) -> "FieldWriter":
        if value is None:
            return self.int16(-1)
        data = value.encode()
        self.int16(len(data))
        self._parts.append(data)
        return self

    def data(self, value: bytes) -> "FieldWriter":
        self.int32(len(value))
        self._parts.append(value)
        return self

    def bytes(self) -> bytes:
        return b"".join(self._parts)
