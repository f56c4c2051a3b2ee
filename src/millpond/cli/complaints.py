"""What was typed and does not fit, in one line: which option, which value, what is allowed.

    --count is '-1'; allowed is a whole number from 1 on

The framework names the option and what it would have liked, but not what it got. Pure. Driven by __main__.py.
"""

from typing import Any, Final

from typer.exceptions import TyperException

_WORDS: Final = {int: "a whole number", float: "a number"}
VALUE_CHARS_MAX: Final = 80


def complaint(error: TyperException) -> str:
    """In the framework's own words where it is about something else than a value; empty where it has none."""
    option: Any = getattr(error, "param", None)
    faults = getattr(error.__cause__, "errors", None)
    allowed = _allowed(getattr(option, "type_descriptor", None))
    if faults is None or allowed is None:
        return error.format_message().rstrip(".")
    name = max(option.opts, key=len)
    return f"{name} is {str(faults()[0]['input'])[:VALUE_CHARS_MAX]!r}; allowed is {allowed}"


def _allowed(kind: Any) -> str | None:  # noqa: ANN401
    choices = getattr(kind, "choices", None)
    if choices:
        return ", ".join(str(getattr(each, "value", each)) for each in choices)
    word = _WORDS.get(getattr(kind, "annotation", object))
    if word is None:
        return None
    least, most = kind.parameter_info.min, kind.parameter_info.max
    if least is None:
        return word if most is None else f"{word} up to {most}"
    return f"{word} from {least} on" if most is None else f"{word} from {least} to {most}"
