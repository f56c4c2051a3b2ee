"""What a setting is: its name, type, range, default and meaning; and how its text becomes a value.

Invariant: a text that `parse` accepts today it accepts for ever, because it may be in a log: ranges may only grow.
Pure. Tables of keys are in topic_configs.py, broker_configs.py and group_configs.py.
"""

import re
from enum import IntEnum
from typing import NoReturn

from millpond.model.errors import InvalidSetting
from millpond.model.values import dataclass

VALUE_CHARS_MAX = 1024
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

Value = bool | int | float | str | tuple[str, ...]

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[+-]?([0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")


class ConfigType(IntEnum):
    """Numbered as DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: str
    about: str
    """What it does here, for DescribeConfigs; says so where it is taken and then not needed."""

    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    form: re.Pattern[str] | None = None
    """Of a text: what is allowed besides `choices`, shown as `form_shown`."""
    form_shown: str = ""

    broker_name: str = ""
    """The broker's setting that a topic or group without its own value takes; empty for the broker's own keys."""

    dynamic: bool = True
    """Whether it may change while the broker runs; the others are read-only."""

    advice: str = ""
    """Added to a refusal: what to do instead."""


def parse(key: ConfigKey, text: str) -> Value:
    """The text as a value; spaces around it do not count."""
    stripped = text.strip()
    if len(text) > VALUE_CHARS_MAX:
        _refuse(key, text)
    match key.type:
        case ConfigType.BOOLEAN:
            if stripped.lower() not in ("true", "false"):
                _refuse(key, text)
            return stripped.lower() == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return int(_number(key, text, _WHOLE))
        case ConfigType.DOUBLE:
            return float(_number(key, text, _DECIMAL))
        case ConfigType.LIST:
            return _list(key, text)
        case ConfigType.STRING:
            if key.choices and stripped not in key.choices and not _has_form(key, stripped):
                _refuse(key, text)
            return stripped


def split_list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text.strip() else []


def _has_form(key: ConfigKey, text: str) -> bool:
    return key.form is not None and key.form.fullmatch(text) is not None


def _number(key: ConfigKey, text: str, form: re.Pattern[str]) -> int | float:
    if form.fullmatch(text.strip()) is None:
        _refuse(key, text)
    value = int(text) if form is _WHOLE else float(text)
    if (key.least is not None and value < key.least) or (key.most is not None and value > key.most):
        _refuse(key, text)
    return value


def _list(key: ConfigKey, text: str) -> tuple[str, ...]:
    items = split_list(text)
    if len(set(items)) != len(items) or "" in items or (key.choices and not set(items) <= set(key.choices)):
        _refuse(key, text)
    return tuple(items)


def _refuse(key: ConfigKey, text: str) -> NoReturn:
    shown = text if len(text) <= 80 else text[:80] + "…"
    advice = f"; {key.advice}" if key.advice else ""
    raise InvalidSetting(f"{key.name} is {shown!r}; allowed is {allowed(key)}{advice}")


def allowed(key: ConfigKey) -> str:
    match key.type:
        case ConfigType.BOOLEAN:
            return "true or false"
        case ConfigType.LIST if key.choices:
            return f"a list, each at most once, of {', '.join(key.choices)}"
        case ConfigType.LIST:
            return "a list, each item at most once"
        case ConfigType.STRING if key.choices:
            return " or ".join((*key.choices, key.form_shown) if key.form else key.choices)
        case ConfigType.STRING:
            return f"a text of at most {VALUE_CHARS_MAX} characters"
        case _:
            number = "a number" if key.type is ConfigType.DOUBLE else "a whole number"
            return f"{number} from {key.least} to {key.most}"
