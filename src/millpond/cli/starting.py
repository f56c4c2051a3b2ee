"""A broker started from the command line, with the framework or without it.

The framework takes longer to load than a broker to open its doors, so what `up` is told plainly is read here. Whatever
else is written, a question for help or a mistake, is None here and the framework's to answer.
Invariant: what is read here is what the framework would have read; the tests hold one against the other.
Loads no broker before one is started. Driven by __main__.py and up.py.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Final

from millpond.model.values import dataclass

SETTINGS: Final = (
    *("data-dir", "kafka", "http", "grpc", "advertise", "node-id", "peers", "discovery", "cluster-id"),
    *("cluster-secret-file", "rack", "offset-store", "log-format"),
)
"""Flags that are settings of the same name, and take a text."""
INSECURE: Final = "insecure"
OTHERS: Final = ("config", "cluster", "set")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What `millpond up` is told."""

    flags: Mapping[str, str]
    sets: Sequence[str] = ()
    config: str | None = None
    cluster: int | None = None
    """How many brokers; None for one that is no trial of a cluster."""


def read_plainly(arguments: Sequence[str]) -> Start | None:
    """Of `up --name value`, `--name=value` and `--insecure`; the last of a name counts, and every --set."""
    if arguments[:1] != ["up"]:
        return None
    flags: dict[str, str] = {}
    others: dict[str, str] = {}
    sets: list[str] = []
    rest = iter(arguments[1:])
    for each in rest:
        name, equals, value = each.removeprefix("--").partition("=")
        if each == f"--{INSECURE}":
            flags[INSECURE] = "true"
            continue
        if not equals:
            value = next(rest, "-")
        if not each.startswith("--") or name not in (*SETTINGS, *OTHERS) or value.startswith("-"):
            return None
        if name == "set":
            sets.append(value)
        else:
            (flags if name in SETTINGS else others)[name] = value
    cluster = others.pop("cluster", None)
    if cluster is not None and not (cluster.isascii() and cluster.isdecimal()):
        return None
    return Start(flags=flags, sets=sets, cluster=None if cluster is None else int(cluster), **others)


def start(wanted: Start) -> None:
    """Returns when the broker has been told to stop, and has."""
    from millpond.app.settings import load  # noqa: PLC0415 - see above

    settings = load(flags=wanted.flags, sets=wanted.sets, environ=os.environ, config=wanted.config)
    # A broker is loaded only when one is started, so that a refusal comes at once.
    if wanted.cluster is None:
        from millpond.app.process import run  # noqa: PLC0415

        run(settings)
    else:
        from millpond.app.cluster_process import run_cluster  # noqa: PLC0415

        run_cluster(settings, wanted.cluster)
