"""Why a call, or one request of a stream, was not done: a status, a code for machines, a sentence for people.

Invariant: every failure has a code that stays the same from version to version, the HTTP door's for the same thing.
A bug of ours is told to `on_error`, and to the caller only that there was one.
Driven by the servicers.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, NoReturn

import grpc

from millpond.api.anywhere.refusals import Refusal, code_of, status_of
from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.model.errors import MillpondError, RefusedByBroker

CODE_KEY: Final = "millpond-code"
"""In the trailing metadata."""
DETAIL_CHARS_MAX: Final = 1_000
BUSY: Final = 503

Context = grpc.aio.ServicerContext[Any, Any]

_BY_HTTP_STATUS: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


class Failed(NamedTuple):
    status: grpc.StatusCode
    code: str
    detail: str
    retriable: bool = False

    def message(self) -> wire.Failure:
        return wire.Failure(code=self.code, detail=self.detail, retriable=self.retriable)


def failure_of(error: MillpondError | Refusal, *, detail: str | None = None) -> Failed:
    detail = (detail or str(error))[:DETAIL_CHARS_MAX]
    if isinstance(error, Refusal):
        return Failed(_BY_HTTP_STATUS[error.status], error.code, detail, error.status == BUSY)
    if isinstance(error, RefusedByBroker):
        by_status = _BY_HTTP_STATUS.get(status_of(error), grpc.StatusCode[error.grpc_code])
        return Failed(by_status, code_of(error), detail, error.retriable)
    return Failed(grpc.StatusCode[error.grpc_code], code_of(error), detail, error.retriable)


async def end(context: Context, failed: Failed) -> NoReturn:
    """Raises what ends the call."""
    await context.abort(failed.status, failed.detail, trailing_metadata=((CODE_KEY, failed.code),))
    raise AssertionError("a call that is ended does not go on")


@asynccontextmanager
async def answering(context: Context, on_error: Callable[[BaseException], None]) -> AsyncIterator[None]:
    """Around all that a call does."""
    try:
        yield
    except (MillpondError, Refusal) as error:
        await end(context, failure_of(error))
    except grpc.aio.AbortError:
        raise
    except grpc.aio.InternalError:  # nobody is there to be written to, at times before `done` says so
        return
    except Exception as error:
        if context.done():  # nobody is there to be answered
            return
        on_error(error)
        detail = "the broker failed to answer; its log says why"
        await end(context, Failed(grpc.StatusCode.INTERNAL, "internal_error", detail))
