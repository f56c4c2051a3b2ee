"""A question before something that cannot be undone.

Invariant: only somebody at a terminal is asked; a script has said what it wants. A no ends the command as Ctrl-C would.
Driven by commands that delete.
"""

import sys
from typing import Annotated

import typer
from typer import Option

Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask; without a terminal nobody is asked.")]


def confirm(question: str, yes: bool) -> None:
    if not yes and sys.stdin is not None and sys.stdin.isatty():
        typer.confirm(question, abort=True, err=True)
