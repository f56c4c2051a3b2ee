"""What went wrong, as a reader of Spark's output sees it: the sentence, and not the way it took through our code.

Spark shows a Python error with all of its traceback, inside an error of its own. Errors of our tree say what to do;
where in Millpond they were raised tells nobody anything.

Driven by source.py and sink.py, at every door that Spark calls.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from millpond.model.errors import MillpondError

P = ParamSpec("P")
Result = TypeVar("Result")


def plainly(door: Callable[P, Result]) -> Callable[P, Result]:
    @wraps(door)
    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        try:
            return door(*args, **kwargs)
        except MillpondError as error:
            raise error.with_traceback(None) from None

    return call


def plainly_each(door: Callable[P, Iterator[Result]]) -> Callable[P, Iterator[Result]]:
    """The same for a generator, which runs later."""

    @wraps(door)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[Result]:
        try:
            yield from door(*args, **kwargs)
        except MillpondError as error:
            raise error.with_traceback(None) from None

    return call
