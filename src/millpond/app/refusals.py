"""Why a broker does not start, for the person who started it.

Not in the tree of model/errors.py: no client is there yet who could be answered.
"""


class CannotListen(Exception):
    """An address for a front door cannot be had; `setting` is the one that names it."""

    def __init__(self, setting: str, error: OSError) -> None:
        super().__init__(setting, error)
        self.setting = setting
        self.error = error


class CannotStart(Exception):
    """The machine is not as it would have to be; `str(error)` is one line that says what is wrong and what to do."""
