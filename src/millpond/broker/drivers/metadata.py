"""The cluster's metadata on this broker: an image, fed from a log of commands on the local disk.

Invariant: the image shows exactly the commands that are durable in the log, in order. Whoever holds an image sees one
moment.
A consensus log takes the local one's place later; callers see no difference. Driven by the operations.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from millpond.core.metadata.commands import Command
from millpond.core.metadata.decisions import Decision
from millpond.core.metadata.encoding import decode, encode
from millpond.core.metadata.image import EMPTY, Image, apply_all
from millpond.model.ids import LeaderEpoch, Offset, TimestampMs
from millpond.model.limits import BATCH_BYTES_MAX, MIB
from millpond.model.ports import Clock, Filesystem
from millpond.protocol.records import decode_batch, encode_values, iter_batches
from millpond.storage.log import Log
from millpond.storage.settings import LogSettings

DIRECTORY = "__cluster_metadata-0"
_SETTINGS = LogSettings(delete=False, retention_ms=None, batch_bytes_max=BATCH_BYTES_MAX)
_EPOCH = LeaderEpoch(0)

Answer = TypeVar("Answer")
Listener = Callable[[Image, Image], None]
"""Called with the image before and after, at once, whenever it changes."""


class MetadataLog:
    def __init__(self, filesystem: Filesystem, data_directory: str, clock: Clock) -> None:
        """Blocks: reads the whole log."""
        self._clock = clock
        self._log = Log.open(filesystem, f"{data_directory}/{DIRECTORY}", _SETTINGS)
        self._turn = asyncio.Lock()
        self._listeners: list[Listener] = []
        self._changes: set[asyncio.Task[Any]] = set()
        self.image = apply_all(_read(self._log), EMPTY)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def decide(self, rule: Callable[[Image], Decision[Answer]]) -> Decision[Answer]:
        """Lets a rule look at the newest image and say what to do; returns when that is done.

        Nothing else changes the image in between, so what was decided on is what it is applied to. A change once begun
        is finished, whoever stops waiting for it: the log must never be ahead of the image.
        """
        change = asyncio.get_running_loop().create_task(self._decide(rule))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        return await asyncio.shield(change)

    async def _decide(self, rule: Callable[[Image], Decision[Answer]]) -> Decision[Answer]:
        async with self._turn:
            decision = rule(self.image)
            await self._keep(decision.commands)
            return decision

    async def submit(self, rule: Callable[[Image], Sequence[Command]]) -> None:
        """The same for commands that need no answers."""
        await self.decide(lambda image: Decision(tuple(rule(image)), ()))

    async def _keep(self, commands: Sequence[Command]) -> None:
        if not commands:
            return
        values = [encode(command) for command in commands]
        batch = encode_values(values, timestamp=TimestampMs(self._clock.wall_ms()))
        await self._log.append_and_wait(bytearray(batch), leader_epoch=_EPOCH)
        before, self.image = self.image, apply_all(commands, self.image)
        for listener in self._listeners:
            listener(before, self.image)

    async def close(self) -> None:
        if self._changes:
            await asyncio.wait(self._changes)
        await self._log.close()


def _read(log: Log) -> list[Command]:
    commands = []
    at = log.start_offset
    while at < log.next_offset:
        part = log.read(Offset(at), bytes_max=MIB)
        for position, _ in iter_batches(part.data):
            for record in decode_batch(part.data, position):
                assert record.value is not None
                commands.append(decode(record.value))
        at = part.next_offset
    return commands
