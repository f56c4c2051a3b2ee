"""`millpond`, also as `python -m millpond.cli`.

Whatever goes wrong is one line on stderr; exit_codes.py says what the process ends with.
"""

import sys
from collections.abc import Sequence
from typing import NoReturn

from millpond.app.refusals import CannotStart
from millpond.cli import exit_codes
from millpond.cli.starting import read_plainly, start
from millpond.model.errors import MillpondError


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    sys.exit(_exit_code(list(sys.argv[1:] if arguments is None else arguments)))


def _exit_code(arguments: list[str]) -> int:
    try:
        if (wanted := read_plainly(arguments)) is not None:
            start(wanted)
            return exit_codes.DONE
        from millpond.cli.commands import run  # noqa: PLC0415 - see starting.py

        return run(arguments)
    except MillpondError as error:
        return _refuse(str(error), exit_codes.of(error))
    except CannotStart as error:
        return _refuse(str(error), exit_codes.FAILED)
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED


def _refuse(message: str, code: int) -> int:
    sys.stderr.write(f"millpond: {' '.join(message.split())}\n")
    return code


if __name__ == "__main__":
    main()
