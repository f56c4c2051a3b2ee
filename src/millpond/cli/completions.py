"""Names that a shell completes: those the cluster has, where it answers at once.

Invariant: a shell is never kept waiting, nor told of anything that went wrong.
Driven by the framework, when a shell asks it.
"""

from typing import Final

import typer

from millpond.cli.options import HERE
from millpond.model.errors import MillpondError

SECONDS_MAX: Final = 1.0


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    from millpond.cli.session import talk  # noqa: PLC0415

    try:
        found = talk(_bootstrap(context), SECONDS_MAX, lambda admin: admin.topics())
    except MillpondError:
        return []
    return [name for name in found if name.startswith(incomplete)]


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    from millpond.cli.session import talk  # noqa: PLC0415

    try:
        found = talk(_bootstrap(context), SECONDS_MAX, lambda admin: admin.groups())
    except MillpondError:
        return []
    return [name for name in found if name.startswith(incomplete)]


def _bootstrap(context: typer.Context) -> str:
    return str(context.params.get("bootstrap") or HERE)
