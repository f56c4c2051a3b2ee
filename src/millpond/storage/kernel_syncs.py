"""Syncs that the kernel makes by itself (Linux' io_submit with FDSYNC), and tells of through a descriptor.

A sync in a thread costs more than the sync: the thread is woken, waits for Python's lock, which is taken from whoever
has it, and again when it comes back (docs/decisions/0027).

    struct iocb (64 bytes): number u64 | key, flags u32 each | opcode u16 | priority i16 | descriptor u32
                            buffer, size u64 each | position i64 | u64 | 1 (tells a descriptor) u32 | which u32
    struct io_event (32 bytes): number u64 | iocb u64 | result i64, negative where it failed | i64

Invariant: `ended` is called once for each sync that `begin` took, on the loop, after the kernel's fdatasync of that
open file has returned. Failures reach it as they would reach fdatasync.
Driven by filesystem.py; opened and closed by app/process.py.
"""

import asyncio
import ctypes
import os
import platform
import struct
import sys
from collections.abc import Callable
from functools import partial

Ended = Callable[[OSError | None], None]

UNDER_WAY_MAX = 128
_SETUP_DESTROY_GETEVENTS_SUBMIT = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
_FDSYNC, _TELLS_DESCRIPTOR = 3, 1
_IOCB = struct.Struct("<QIIHhIQQqQII")
_EVENT = struct.Struct("<QQqq")
_AT_ONCE = struct.Struct("<qq").pack(0, 0)

_libc = ctypes.PyDLL(None)
"""Which holds on to Python's lock: none of these calls waits, and others would take it meanwhile."""


class KernelSyncs:
    def __init__(self, context: ctypes.c_ulong, calls: tuple[int, int, int, int]) -> None:
        """Use `open_kernel_syncs`."""
        self._loop = asyncio.get_running_loop()
        _, destroy, get_events, submit = map(ctypes.c_long, calls)
        self._told_by = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ended: dict[int, Ended] = {}
        self._number = 0
        self._iocb = ctypes.create_string_buffer(_IOCB.size)
        self._iocbs = ctypes.byref(ctypes.c_void_p(ctypes.addressof(self._iocb)))  # the kernel copies it at once
        self._events = ctypes.create_string_buffer(_EVENT.size * UNDER_WAY_MAX)
        # With all their arguments, which never change: to make them anew takes longer than the calls.
        most = ctypes.c_long(UNDER_WAY_MAX)
        self._submit = partial(_libc.syscall, submit, context, ctypes.c_long(1), self._iocbs)
        self._get_events = partial(
            _libc.syscall, get_events, context, ctypes.c_long(0), most, self._events, ctypes.c_char_p(_AT_ONCE)
        )
        self._destroy = partial(_libc.syscall, destroy, context)
        self._loop.add_reader(self._told_by, self._told)

    def begin(self, fd: int, ended: Ended) -> bool:
        """False where it cannot be taken now, or not for such a file: `ended` is not called then."""
        if len(self._ended) >= UNDER_WAY_MAX:
            return False
        self._number = number = self._number + 1
        _IOCB.pack_into(self._iocb, 0, number, 0, 0, _FDSYNC, 0, fd, 0, 0, 0, 0, _TELLS_DESCRIPTOR, self._told_by)
        if self._submit() != 1:
            return False
        self._ended[number] = ended
        return True

    def _told(self) -> None:
        os.eventfd_read(self._told_by)
        count = self._get_events()
        for position in range(0, count * _EVENT.size, _EVENT.size):
            number, _, result, _ = _EVENT.unpack_from(self._events, position)
            try:
                self._ended.pop(number)(OSError(-result, os.strerror(-result)) if result < 0 else None)
            except Exception as error:  # a bug of one log must not keep the others waiting for ever
                self._loop.call_exception_handler(
                    {"message": "the end of a sync was not taken well", "exception": error}
                )

    def close(self) -> None:
        """Waits for what is under way; nobody is told of it any more."""
        self._loop.remove_reader(self._told_by)
        self._destroy()
        os.close(self._told_by)


def open_kernel_syncs() -> KernelSyncs | None:
    """For the running loop; None where the system has no such thing, or forbids it."""
    calls = _SETUP_DESTROY_GETEVENTS_SUBMIT.get(platform.machine())
    if sys.platform != "linux" or calls is None:
        return None
    context = ctypes.c_ulong(0)
    if _libc.syscall(ctypes.c_long(calls[0]), ctypes.c_long(UNDER_WAY_MAX), ctypes.byref(context)) != 0:
        return None
    return KernelSyncs(context, calls)
