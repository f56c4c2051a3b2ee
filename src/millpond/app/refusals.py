"""Why a broker does not start, for the person who started it.

Not in the tree of model/errors.py: no client is there yet who could be answered.
"""


class CannotStart(Exception):
    """The machine is not as it would have to be; `str(error)` is one line that says what is wrong and what to do."""
