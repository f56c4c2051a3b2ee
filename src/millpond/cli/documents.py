"""What a command found out, as a document for programs: JSON, or YAML of the plain kind.

Invariant: both say the same; every text in YAML is quoted as JSON quotes it, so that none is taken for a number.
Pure.
"""

import json
from collections.abc import Iterator, Mapping


def as_json(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)


def as_yaml(document: Mapping[str, object]) -> str:
    return "\n".join(_lines(document))


def _lines(value: object) -> Iterator[str]:
    """A mapping or a list that is not empty, a line each or more."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _entry(f"{name}:", item, indent="  ")
    elif isinstance(value, list):
        for item in value:
            if _is_nested(item):
                first, *rest = _lines(item)
                yield f"- {first}"
                yield from (f"  {line}" for line in rest)
            else:
                yield f"- {_plain(item)}"


def _entry(head: str, item: object, *, indent: str) -> Iterator[str]:
    if _is_nested(item):
        yield head
        yield from (indent + line for line in _lines(item))
    else:
        yield f"{head} {_plain(item)}"


def _plain(item: object) -> str:
    # Escapes of letters beyond the first plane mean one thing in JSON and another in YAML.
    return json.dumps(item, ensure_ascii=False)


def _is_nested(item: object) -> bool:
    """Else it fits on its line; lists of numbers do as well."""
    return bool(item) and (isinstance(item, Mapping) or (isinstance(item, list) and isinstance(item[0], Mapping)))
