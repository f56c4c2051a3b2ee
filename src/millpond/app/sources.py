"""Where settings come from: a TOML file, the environment, the command line. Each is read into the same plain texts.

    [millpond.toml]             environment                      command line
    data-dir = "d"              MILLPOND_DATA_DIR=d              --data-dir d
    [set]
    num.partitions = 3          MILLPOND_SET_NUM_PARTITIONS=3    --set num.partitions=3

Invariant: every value is a `Given` that knows its source, so that a refusal can say where to look; a name that is not
known is refused here, with the nearest that is.
Pure, but for reading the file. Driven by settings.py.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from millpond.core.metadata.broker_configs import BROKER_KEYS
from millpond.model.errors import InvalidSetting
from millpond.model.values import dataclass

NAMES = (
    *("data-dir", "kafka", "http", "grpc", "advertise", "node-id", "offset-store", "insecure", "log-format"),
    *("rack", "peers", "discovery", "cluster-id", "cluster-secret", "cluster-secret-file"),
)
SHORT = {"rack": "broker.rack"}
"""Names of our own for settings that Kafka's brokers have too; both are taken."""
SET = "set"
ENVIRONMENT_PREFIX = "MILLPOND_"
ENVIRONMENT_SET_PREFIX = "MILLPOND_SET_"
ENVIRONMENT_CONFIG = "MILLPOND_CONFIG"
ENVIRONMENT_BOOTSTRAP = "MILLPOND_BOOTSTRAP"
ENVIRONMENT_DOOR = "MILLPOND_DOOR"
"""Whom other commands ask; nothing to a broker."""
ENVIRONMENT_PURE = "MILLPOND_PURE"
"""For Spark's tasks: to do without the compiled kernel (pipeline/kernel.py)."""

INSTEAD = {
    "node.id": "node-id",
    "broker.id": "node-id",
    "listeners": "kafka",
    "advertised.listeners": "advertise",
    "log.dirs": "data-dir",
}
"""Settings of a broker that have a name of their own here; a second one could contradict it."""

_NO_SETTINGS = frozenset({ENVIRONMENT_CONFIG, ENVIRONMENT_BOOTSTRAP, ENVIRONMENT_DOOR, ENVIRONMENT_PURE})
_ENVIRONMENT_NAMES = {ENVIRONMENT_PREFIX + name.upper().replace("-", "_"): name for name in NAMES}
_ENVIRONMENT_SETS = {ENVIRONMENT_SET_PREFIX + name.upper().replace(".", "_"): name for name in BROKER_KEYS}

# A Kubernetes service called `millpond` puts such variables into every pod beside it; they mean nothing here.
_SERVICE_LINK = re.compile(r"MILLPOND_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")


@dataclass(frozen=True, slots=True)
class Given:
    """One setting as somebody gave it."""

    text: str
    source: str
    """For people: `millpond.toml:3`, `environment MILLPOND_NODE_ID`, `--node-id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one source says."""

    own: Mapping[str, Given]
    """By the names above."""
    sets: Mapping[str, Given]
    """By Kafka's names."""


def _layer(own: Mapping[str, Given], sets: Mapping[str, Given]) -> Layer:
    said_short = {SHORT[name]: given for name, given in own.items() if name in SHORT}
    return Layer(own={name: own[name] for name in own if name not in SHORT}, sets={**sets, **said_short})


def from_file(path: str, *, source: str) -> Layer:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        document = tomllib.loads(text)
    except OSError as error:
        raise InvalidSetting(
            f"config is {path!r} ({source}), which cannot be read: {error.strerror}; name a TOML file that is there"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{path} is no TOML: {error}; correct it there") from None
    own: dict[str, Given] = {}
    sets: dict[str, Given] = {}
    for name, value in document.items():
        if name == SET and isinstance(value, dict):
            for key, item in _flat(value):
                where = _place(path, text, key)
                _check_set_name(key, where)
                sets[key] = Given(_text(key, item, where), where)
        else:
            where = _place(path, text, name)
            if name == SET:
                raise InvalidSetting(f"{SET} ({where}) is no table; write [{SET}], and below it num.partitions = 3")
            _check_name(name, where)
            own[name] = Given(_text(name, value, where), where)
    return _layer(own, sets)


def from_environment(environ: Mapping[str, str]) -> Layer:
    own: dict[str, Given] = {}
    sets: dict[str, Given] = {}
    for variable, text in environ.items():
        source = f"environment {variable}"
        if name := _ENVIRONMENT_NAMES.get(variable):
            own[name] = Given(text, source)
        elif key := _ENVIRONMENT_SETS.get(variable):
            _check_set_name(key, source)
            sets[key] = Given(text, source)
        elif _is_unknown(variable):
            known = [*_ENVIRONMENT_NAMES, *_ENVIRONMENT_SETS, ENVIRONMENT_CONFIG]
            raise InvalidSetting(f"{variable} (environment) is no setting; {_nearest(variable, known)}")
    return _layer(own, sets)


def _is_unknown(variable: str) -> bool:
    ours = variable.startswith(ENVIRONMENT_PREFIX) and variable not in _NO_SETTINGS
    return ours and _SERVICE_LINK.fullmatch(variable) is None


def from_flags(flags: Mapping[str, str], sets: Sequence[str]) -> Layer:
    """`flags` by the names above, only those that were given; `sets` as `name=value`, the last of a name wins."""
    read: dict[str, Given] = {}
    for each in sets:
        name, equals, text = each.partition("=")
        name = name.strip()
        if not equals:
            raise InvalidSetting(
                f"--set is {each[:80]!r}; allowed is name=value; write for instance --set num.partitions=3"
            )
        _check_set_name(name, "--set")
        read[name] = Given(text, f"--set {name}")
    return _layer({name: Given(text, f"--{name}") for name, text in flags.items()}, read)


# Reading TOML


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """TOML takes the dots of an unquoted name for tables within tables."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _text(name: str, value: object, source: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case list() if all(isinstance(item, str) for item in value):
            return ",".join(value)
        case _:
            raise InvalidSetting(
                f"{name} ({source}) is of a kind that no setting has; allowed is a text, a number, true, false or a "
                "list of texts"
            )


def _place(path: str, text: str, name: str) -> str:
    """The file and, where it is plain to see, the line; `name` may stand there quoted, or in part below a table."""
    for shown in (name, name.rpartition(".")[2]):
        form = re.compile(rf"""\s*["']?(\w+\.)*{re.escape(shown)}["']?\s*=|\s*\[\s*["']?{re.escape(shown)}["']?\s*\]""")
        lines = [number for number, line in enumerate(text.splitlines(), start=1) if form.match(line)]
        if len(lines) == 1:
            return f"{path}:{lines[0]}"
    return path


# Names that are not known


def _check_name(name: str, source: str) -> None:
    if name in NAMES:
        return
    if name in BROKER_KEYS or "." in name:
        raise InvalidSetting(f"{name} ({source}) stands by itself; put it below [set]")
    raise InvalidSetting(f"{name[:80]!r} ({source}) is no setting; {_nearest(name, [*NAMES, SET])}")


def _check_set_name(name: str, source: str) -> None:
    if name in INSTEAD:
        raise InvalidSetting(f"{name} ({source}) has its own name here; give {INSTEAD[name]} instead")
    if name not in BROKER_KEYS:
        known = [key for key in BROKER_KEYS if key not in INSTEAD]
        raise InvalidSetting(f"{name[:80]!r} ({source}) is no setting of a broker; {_nearest(name, known)}")


def _nearest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(known))}"
