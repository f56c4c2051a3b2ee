"""What `millpond` ends with, so that scripts can tell why.

    0  done                 3  what was named is not there              130  interrupted
    1  failed               4  not now: nobody answered, or not in time   141  whoever read the output has closed it
    2  asked wrongly        5  refused as things are

Invariant: every error of the tree has one; it follows from what HTTP would answer. Pure. Driven by __main__.py.
"""

from typing import Final

from millpond.model.errors import MillpondError

DONE: Final = 0
FAILED: Final = 1
ASKED_WRONGLY: Final = 2
NOT_THERE: Final = 3
NOT_NOW: Final = 4
NOT_AS_THINGS_ARE: Final = 5
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

_BY_STATUS: Final = {
    400: ASKED_WRONGLY,
    413: ASKED_WRONGLY,
    416: ASKED_WRONGLY,
    404: NOT_THERE,
    403: NOT_AS_THINGS_ARE,
    409: NOT_AS_THINGS_ARE,
    503: NOT_NOW,
    504: NOT_NOW,
}


def of(error: MillpondError) -> int:
    return _BY_STATUS.get(error.http_status, FAILED)
