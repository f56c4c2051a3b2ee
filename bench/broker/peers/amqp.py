"""As little of AMQP 0-9-1 as it takes to publish with confirms, and to consume.

frame    kind u8, channel u16, size u32, payload, 0xCE
method   class u16, method u16, arguments
content  a header frame (class, weight, size of the body, which properties, those), then a body frame
"""

import struct
from socket import socket

from bench.broker.driving import MESSAGE, MESSAGE_BYTES, receive, repeated
from bench.broker.processes import NotReady

_FRAME = struct.Struct("!BHI")
_METHOD = struct.Struct("!HH")
_END = b"\xce"
_METHOD_FRAME, _HEADER_FRAME, _BODY_FRAME = 1, 2, 3
_CONTENT = struct.Struct("!HHQHB")
_DELIVERY_MODE = 1 << 12
_ACK = struct.Struct("!BHIHHQBx")
_BASIC = 60
_BASIC_ACK = 80
_CONFIRM_SELECT, _CONFIRM_SELECTED = (85, 10), (85, 11)
_START, _START_OK = (10, 10), (10, 11)
_TUNE, _TUNE_OK = (10, 30), (10, 31)
_OPEN, _OPENED = (10, 40), (10, 41)
_CHANNEL_OPEN, _CHANNEL_OPENED = (20, 10), (20, 11)
_DECLARE, _DECLARED = (50, 10), (50, 11)
_LIMIT, _LIMITED = (_BASIC, 10), (_BASIC, 11)
_CONSUME, _CONSUMED = (_BASIC, 20), (_BASIC, 21)
_PUBLISH = (_BASIC, 40)
_DURABLE = 1 << 1
_NO_ACKNOWLEDGEMENT = 1 << 1


class Channel:
    """One channel of one connection, open."""

    def __init__(self, connection: socket) -> None:
        self.socket = connection
        self._data = b""
        connection.sendall(b"AMQP\0\0\x09\x01")
        self.expect(_START)
        self._send(0, _START_OK, _table(b"") + _short(b"PLAIN") + _long(b"\0guest\0guest") + _short(b"en_US"))
        tuning = self.expect(_TUNE)
        without_heartbeat = tuning[:6] + b"\0\0"
        self._send(0, _TUNE_OK, without_heartbeat)
        self._send(0, _OPEN, _short(b"/") + _short(b"") + b"\0")
        self.expect(_OPENED)
        self.ask(_CHANNEL_OPEN, _short(b""), _CHANNEL_OPENED)

    def ask(self, method: tuple[int, int], arguments: bytes, answer: tuple[int, int]) -> bytes:
        self._send(1, method, arguments)
        return self.expect(answer)

    def expect(self, method: tuple[int, int]) -> bytes:
        """The arguments of the method that comes next, which is this one."""
        self._receive(_FRAME.size)
        kind, _, size = _FRAME.unpack_from(self._data)
        end = _FRAME.size + size + 1
        self._receive(end)
        payload, self._data = self._data[_FRAME.size : end - 1], self._data[end:]
        if kind != _METHOD_FRAME or _METHOD.unpack_from(payload) != method:
            raise NotReady(f"{payload!r} came in the place of method {method}")
        return payload[_METHOD.size :]

    def _receive(self, at_least: int) -> None:
        while len(self._data) < at_least:
            self._data += receive(self.socket)

    def take_rest(self) -> bytes:
        rest, self._data = self._data, b""
        return rest

    def _send(self, channel: int, method: tuple[int, int], arguments: bytes) -> None:
        self.socket.sendall(_frame(_METHOD_FRAME, channel, _METHOD.pack(*method) + arguments))


class Publishing:
    """A conversation: one message a request, confirmed."""

    def __init__(self, connection: socket, queue: str, *, persistent: bool) -> None:
        self.socket = connection
        Channel(connection).ask(_CONFIRM_SELECT, b"\0", _CONFIRM_SELECTED)
        publish = _METHOD.pack(*_PUBLISH) + struct.pack("!H", 0) + _short(b"") + _short(queue.encode()) + b"\0"
        content = _CONTENT.pack(_BASIC, 0, MESSAGE_BYTES, _DELIVERY_MODE, 2 if persistent else 1)
        request = b"".join(
            _frame(kind, 1, payload)
            for kind, payload in ((_METHOD_FRAME, publish), (_HEADER_FRAME, content), (_BODY_FRAME, MESSAGE))
        )
        self.requests, self.request_bytes = repeated(request), len(request)
        self._confirms = Confirms()

    def answered(self, data: bytes) -> int:
        return self._confirms.add(data)


class Confirms:
    """How many messages have been confirmed: one by one in any order, or all up to one at once."""

    def __init__(self) -> None:
        self._rest = b""
        self._all_up_to = 0
        self._beyond: set[int] = set()

    def add(self, data: bytes) -> int:
        """Those that these bytes confirm."""
        data = self._rest + data
        count = 0
        whole = len(data) - len(data) % _ACK.size
        for _, _, _, of, method, tag, multiple in _ACK.iter_unpack(data[:whole]):
            if (of, method) != (_BASIC, _BASIC_ACK):
                raise NotReady(f"method {of}.{method} came in the place of a confirm")
            count += self._all_to(tag) if multiple else self._one(tag)
        self._rest = data[whole:]
        return count

    def _all_to(self, tag: int) -> int:
        known = {each for each in self._beyond if each <= tag}
        count = tag - self._all_up_to - len(known)
        self._beyond -= known
        self._all_up_to = tag
        return count

    def _one(self, tag: int) -> int:
        self._beyond.add(tag)
        while self._all_up_to + 1 in self._beyond:
            self._all_up_to += 1
            self._beyond.remove(self._all_up_to)
        return 1


def declare(channel: Channel, queue: str, *, quorum: bool) -> None:
    """Quorum queues are durable always; the other is not, and goes with its server."""
    kind = b"quorum" if quorum else b"classic"
    arguments = _table(_short(b"x-queue-type") + b"S" + _long(kind))
    options = bytes([_DURABLE if quorum else 0])
    channel.ask(_DECLARE, struct.pack("!H", 0) + _short(queue.encode()) + options + arguments, _DECLARED)


def consume(channel: Channel, queue: str, *, unacknowledged_max: int | None = None) -> bytes:
    """From now on messages are pushed; returns those bytes that came with the answer.

    Without a limit they are gone when they are sent; else each has to be acknowledged.
    """
    if unacknowledged_max is not None:
        channel.ask(_LIMIT, struct.pack("!IHB", 0, unacknowledged_max, 0), _LIMITED)
    options = bytes([_NO_ACKNOWLEDGEMENT if unacknowledged_max is None else 0])
    arguments = struct.pack("!H", 0) + _short(queue.encode()) + _short(b"") + options + _table(b"")
    channel.ask(_CONSUME, arguments, _CONSUMED)
    return channel.take_rest()


def acknowledgement(tag: int) -> bytes:
    """Of that message and all before it; it is not answered."""
    return _ACK.pack(_METHOD_FRAME, 1, _METHOD.size + 9, _BASIC, _BASIC_ACK, tag, 1)[:-1] + _END


def barrier(unacknowledged_max: int) -> tuple[bytes, bytes]:
    """A request whose answer tells that all before it was taken in, and that answer."""
    request = _METHOD.pack(*_LIMIT) + struct.pack("!IHB", 0, unacknowledged_max, 0)
    return _frame(_METHOD_FRAME, 1, request), _frame(_METHOD_FRAME, 1, _METHOD.pack(*_LIMITED))


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + _END


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _long(text: bytes) -> bytes:
    return struct.pack("!I", len(text)) + text


_table = _long
