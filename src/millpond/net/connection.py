"""One accepted connection: requests handed over as they come, answers written in their order.

Reading stops while too many answers are outstanding, while the peer does not read those it got, or while the server
holds too much memory; what came already waits, unread, and the peer's own socket fills up.

Invariant: a request is handed over at most once and in order; its answer is written after those of the requests before
it, or the connection ends. When it ends, every handler that still runs for it is cancelled, and its memory counts
until it has come to its end.
Driven by the event loop, as an asyncio protocol, and by server.py. Between `get_buffer` and `buffer_updated` nothing
else runs, on any loop that reads when it can (and not ahead of time): so all connections read into one scratch buffer.
"""

import asyncio
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, cast

from millpond.model.values import dataclass
from millpond.net.answers import Answer, AnswerFuture, AnswerQueue, Batch, Later, Promise, Waiting
from millpond.net.deadlines import Deadlines
from millpond.net.facts import CloseReason, NetworkFacts
from millpond.net.frames import BadFrameLength, FrameReader
from millpond.net.limits import NetworkLimits
from millpond.net.memory import MemoryBudget

FRAMES_PER_TURN_MAX = 64
"""Then the others have a turn, however much one peer has sent at once."""

TAKEN_BYTES_MIN = 64 * 1024
"""A peer that takes this much within `write_seconds` is on a thin line, and may go on."""

JOINED_BYTES_MAX = 64 * 1024
"""Up to here answers are copied into one piece: with many small ones that costs less than to write each by itself."""

# Why nothing is read and nothing handed over, as bits.
IN_FLIGHT, WRITING, MEMORY, TURN, ENDING = 1, 2, 4, 8, 16


@dataclass(slots=True, kw_only=True)
class Shared:
    """What the connections of one server have in common."""

    loop: asyncio.AbstractEventLoop
    limits: NetworkLimits
    facts: NetworkFacts
    memory: MemoryBudget
    scratch: bytearray
    handle: Callable[[memoryview, "Connection"], Answer | Later | None]
    admit: Callable[["Connection"], bool]
    """Whether there is room for one more."""
    leave: Callable[["Connection", CloseReason], None]
    fail: Callable[[BaseException, "Connection"], None]
    """Takes what should not have been raised."""
    orphans: set[AnswerFuture]
    """Handlers whose connection is gone and that have not come to their end."""
    kept: list[tuple["Connection", Promise]] = field(default_factory=list)
    """Promises that were kept in this turn of the loop."""

    def answer_soon(self, connection: "Connection", promise: Promise) -> None:
        """When all that are kept in this turn are: written one right behind the other, they cost a third less. A peer
        that was woken by the first is still awake then, and those of one connection go out together."""
        if not self.kept:
            self.loop.call_soon(self._answer)
        self.kept.append((connection, promise))

    def _answer(self) -> None:
        kept, self.kept = self.kept, []
        for connection, promise in kept:
            try:
                connection.answered(promise)
            except Exception as error:  # a bug of ours, and nothing to the others of this turn
                connection.abort()
                self.loop.call_exception_handler({"message": "an answer was not taken well", "exception": error})


class Connection(asyncio.BufferedProtocol):
    """For whoever handles requests: `id`, `peer`, `extra`, `close` and `abort`. The rest is for the event loop."""

    __slots__ = (
        "_alone",
        "_answers",
        "_batch",
        "_deadlines",
        "_farewells",
        "_in_turn",
        "_lost",
        "_partial_bytes",
        "_paused",
        "_reader",
        "_reason",
        "_shared",
        "_taken_bytes",
        "_timer",
        "_timer_at",
        "_transport",
        "_written_bytes",
        "extra",
        "id",
        "peer",
    )

    def __init__(self, number: int, shared: Shared) -> None:
        self.id = number
        self.peer: tuple[str, int] = ("", 0)
        self.extra: Any = None
        self._farewells: list[Callable[[], object]] = []
        """State of the session, for whoever handles its requests: client id, principal."""
        self._shared = shared
        self._transport: asyncio.Transport
        self._reader = FrameReader(shared.scratch, frame_bytes_max=shared.limits.frame_bytes_max)
        self._answers = AnswerQueue(shared.memory)
        self._batch = Batch()
        self._deadlines = Deadlines(shared.limits, shared.loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._paused = 0
        self._alone = False
        """The last request handed over may have a large answer: nothing more is handed over before that is out."""
        self._in_turn = False
        self._lost = False
        self._reason: CloseReason | None = None
        self._partial_bytes = 0
        """Of what came and was not handed over, as the memory budget knows it."""
        self._written_bytes = 0
        self._taken_bytes = 0
        """Of those written, the ones that the peer had taken when a deadline was last moved for it."""

    def __repr__(self) -> str:
        return f"<Connection {self.id} from {self.peer[0]}:{self.peer[1]}>"

    @property
    def reading(self) -> bool:
        """Whether requests are taken as they come."""
        return not self._paused

    @property
    def unread_bytes(self) -> int:
        """Of its answers, those that the peer has not taken."""
        return self._transport.get_write_buffer_size()

    # --- Beginning and end -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):  # None when it has gone already
            self.peer = (str(peer[0]), int(peer[1]))
        if not self._shared.admit(self):
            self._lost = True
            self._paused = ENDING
            transport.abort()
            return
        transport.set_write_buffer_limits(high=self._shared.limits.write_buffer_bytes_max)
        self._watch()

    def close(self) -> None:
        """Hands over no further request, answers those there are, and closes then."""
        self.finish(CloseReason.CLOSED_HERE)

    def abort(self) -> None:
        """Closes at once; whoever works on an answer is cancelled."""
        if not self._lost:
            self._reason = self._reason or CloseReason.CLOSED_HERE
            self._stop_everything()
            self._transport.abort()

    def finish(self, reason: CloseReason) -> None:
        if self._paused & ENDING:
            return
        self._reason = reason
        self._pause(ENDING)
        self._reader.forget()
        self._deadlines.frame_since = None
        if self._transport.is_closing():
            return
        # Read on, and throw away: closing a socket that has unread bytes resets the connection, and a reset
        # can destroy answers that the peer has not read yet.
        self._transport.resume_reading()
        if not self._in_turn:
            self._account()
            self._shared.memory.leave(self)
            self._close_if_done()

    def _close_if_done(self) -> None:
        if self._paused & ENDING and not self._answers.waiting and not self._transport.is_closing():
            self._deadlines.write_since = self._deadlines.write_since or self._shared.loop.time()
            self._transport.close()
            self._watch()

    def _end(self, reason: CloseReason) -> None:
        """Closes after what has been written, without the answers that are not there yet."""
        self._reason = self._reason or reason
        self._stop_everything()
        self._close_if_done()

    def _fail(self, error: BaseException) -> None:
        self._end(CloseReason.HANDLER_FAILED)
        self._shared.fail(error, self)

    def _stop_everything(self) -> None:
        self._pause(ENDING)
        self._reader.forget()
        for waiting, held_bytes in self._answers.take_all():
            if isinstance(waiting, Promise):
                waiting.abandon()
            else:
                self._orphan(waiting, held_bytes)
        self._account()
        self._shared.memory.leave(self)

    def _orphan(self, future: AnswerFuture, held_bytes: int) -> None:
        """Cancels a handler nobody waits for; its request counts as memory for as long as it lives."""
        shared = self._shared
        shared.orphans.add(future)
        shared.memory.used_bytes += held_bytes
        future.remove_done_callback(self.answered)
        future.add_done_callback(partial(self._orphan_ended, held_bytes))
        # Not at once: one that has not begun would never begin, and Python warns of the coroutine inside it.
        shared.loop.call_soon(future.cancel)

    def _orphan_ended(self, held_bytes: int, future: AnswerFuture) -> None:
        self._shared.orphans.discard(future)
        self._shared.memory.leave(self, held_bytes)
        if not future.cancelled() and (error := future.exception()) is not None:
            self._shared.fail(error, self)

    def eof_received(self) -> None:
        """A peer that says nothing more is taken to be gone: nobody should wait on its behalf."""
        self._end(CloseReason.PEER_CLOSED)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        failure = CloseReason.PEER_CLOSED if exc is None else CloseReason.CONNECTION_FAILED
        self._reason = self._reason or failure
        if self._timer is not None:
            self._timer.cancel()
        self._stop_everything()
        self._shared.leave(self, self._reason)
        for then in self._farewells:
            then()

    # --- Requests --------------------------------------------------------------------------------

    def when_lost(self, then: Callable[[], object]) -> None:
        """Calls it once the connection is gone; at once, if it is."""
        if self._lost:
            then()
        else:
            self._farewells.append(then)

    def answer_alone(self) -> None:
        """For the request being handled: a peer that asks for much, and reads nothing, has one such answer waiting."""
        self._alone = True

    def get_buffer(self, sizehint: int) -> memoryview:
        memory = self._shared.memory
        return self._reader.room(frugal=self._paused != 0 or (memory.exceeded and not memory.is_exempt(self)))

    def buffer_updated(self, nbytes: int) -> None:
        self._shared.facts.bytes_in += nbytes
        if self._paused & ENDING:
            return
        self._reader.arrived(nbytes)
        if self._alone:
            self._pause(IN_FLIGHT)
        if self._paused:  # a transport may bring a little more after it was told to pause
            self._reader.settle()
            self._account()
        else:
            self._take_turn()

    def _take_turn(self) -> None:
        """Hands over the frames that are whole, and writes the answers that are there at once."""
        self._in_turn = True
        frame_count = 0
        try:
            while not self._paused and not self._alone:
                frame = self._reader.next_frame()
                if frame is None:
                    break
                frame_count += 1
                self._hand_over(frame)
                if frame_count == FRAMES_PER_TURN_MAX and self._reader.holds_more:
                    self._pause(TURN)
                    self._shared.loop.call_soon(self._go_on)
        except BadFrameLength:
            self._write()
            self._end(CloseReason.BAD_FRAME_LENGTH)
        except Exception as error:
            self._write()
            self._fail(error)
        self._in_turn = False
        self._shared.facts.frames_in += frame_count
        if self._batch.frame_count:
            self._write()
        if frame_count:
            self._deadlines.frame_since = None
            self._deadlines.active_at = self._shared.loop.time()
        if holds_some := self._reader.settle():
            self._note_partial()
        if holds_some or self._partial_bytes or self._shared.memory.is_tight():
            self._account(is_more=frame_count > 0)
        if self._paused & ENDING:
            self._shared.memory.leave(self)
            self._close_if_done()

    def _hand_over(self, frame: memoryview) -> None:
        shared, answers = self._shared, self._answers
        answer = shared.handle(frame, self)
        if answer is None:
            return
        if isinstance(answer, list):
            self._alone = False
            if not answers.waiting:
                self._batch.add(answer)
                if self._batch.size_bytes > shared.limits.write_buffer_bytes_max:
                    self._write()
                return
            answers.put(answer, held_bytes=sum(map(len, answer)))
        else:
            waiting = answer if isinstance(answer, Promise) else asyncio.ensure_future(answer, loop=shared.loop)
            if not answers.waiting:  # else when its turn comes: those that are done together then go out together
                self._wait_for(waiting)
            answers.put(waiting, held_bytes=len(frame))
        if len(answers.waiting) >= shared.limits.in_flight_max:
            self._pause(IN_FLIGHT)

    def _note_partial(self) -> None:
        is_ours_to_wait = self._alone or self._paused & ~MEMORY
        if self._deadlines.frame_since is None and not is_ours_to_wait and self._reader.mid_frame:
            self._deadlines.frame_since = self._shared.loop.time()
            self._watch()

    # --- Answers ---------------------------------------------------------------------------------

    def _wait_for(self, next_up: Waiting) -> None:
        if not isinstance(next_up, Promise):
            next_up.add_done_callback(self.answered)
        elif next_up.is_done:
            self._shared.answer_soon(self, next_up)
        else:
            next_up.when_done(partial(self._shared.answer_soon, self))

    def answered(self, waited_for: Waiting) -> None:
        if not self._answers.is_first(waited_for):
            return
        try:
            next_up = self._answers.take_ready(self._batch)
        except (Exception, asyncio.CancelledError) as error:
            self._write()
            self._fail(error)
            return
        if next_up is not None:
            self._wait_for(next_up)
        self._write()
        self._deadlines.active_at = self._shared.loop.time()
        if self._shared.memory.is_tight():
            self._account()
        if self._paused & ENDING:
            self._close_if_done()
        elif self._alone:
            if not self._answers.waiting:
                self._alone = False
                if self._reader.holds_more:  # what came with the request; what came later has paused us
                    self._pause(IN_FLIGHT)
                self._unpause(IN_FLIGHT)
        elif self._paused & IN_FLIGHT and len(self._answers.waiting) < self._shared.limits.in_flight_max:
            self._unpause(IN_FLIGHT)

    def _write(self) -> None:
        batch = self._batch
        if not batch.frame_count:
            return
        self._batch = Batch()
        if self._transport.is_closing():
            return
        facts = self._shared.facts
        facts.frames_out += batch.frame_count
        facts.bytes_out += batch.size_bytes
        self._written_bytes += batch.size_bytes
        if batch.size_bytes <= JOINED_BYTES_MAX:
            self._transport.write(b"".join(batch.pieces))
        else:
            self._transport.writelines(batch.pieces)

    # --- Flow control ----------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._pause(WRITING)
        self._taken_bytes = self._written_bytes - self.unread_bytes
        self._deadlines.write_since = self._shared.loop.time()
        self._watch()

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._deadlines.write_since = None
        self._unpause(WRITING)

    def memory_granted(self) -> None:
        self._unpause(MEMORY)

    def _account(self, *, is_more: bool = False) -> None:
        """Tells the memory budget what is held of frames that are not whole, and waits if all hold too much.

        Those that wait for an answer it knows of; `is_more` where some of them may be new.
        """
        memory, reader = self._shared.memory, self._reader
        by_bytes, self._partial_bytes = reader.held_bytes - self._partial_bytes, reader.held_bytes
        memory.used_bytes += by_bytes
        if memory.is_tight() and memory.waits(
            self, is_more=is_more or by_bytes > 0, mid_frame=reader.mid_frame, answering=bool(self._answers.waiting)
        ):
            self._pause(MEMORY)

    def _pause(self, why: int) -> None:
        if not self._paused and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused |= why
        if why & (IN_FLIGHT | WRITING):  # not the peer's fault: its frame's time begins anew
            self._deadlines.frame_since = None

    def _unpause(self, why: int) -> None:
        if self._paused & why:
            self._paused &= ~why
            if not self._paused:
                self._paused = TURN
                self._shared.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._paused &= ~TURN
        if not self._paused:
            self._take_turn()
            self._read_on()

    def _read_on(self) -> None:
        if not self._paused and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- Deadlines -------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Sees to it that the timer rings no later than the next deadline."""
        at = self._deadlines.next_at()
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        # Kept beside the timer, since uvloop's cannot tell when it is for a time that is over.
        self._timer_at = at
        self._timer = self._shared.loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        deadlines, now = self._deadlines, self._shared.loop.time()
        if self._answers.waiting or self._paused:
            deadlines.active_at = now  # it waits for us, or for something with a deadline of its own
        reason = deadlines.passed(now)
        if reason is CloseReason.SLOW_READER and self._took_some():
            deadlines.write_since = now
            reason = deadlines.passed(now)
        if reason is None:
            self._watch()
        elif reason is CloseReason.SLOW_READER:
            self._reason = self._reason or reason
            self.abort()
        else:
            self._end(reason)

    def _took_some(self) -> bool:
        taken_bytes = self._written_bytes - self.unread_bytes
        progress_bytes, self._taken_bytes = taken_bytes - self._taken_bytes, taken_bytes
        return progress_bytes >= TAKEN_BYTES_MIN
