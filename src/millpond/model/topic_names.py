"""Which names a topic may have. Pure: asked at every door, and before a name becomes part of a path."""

import re

from millpond.model.errors import InvalidTopicName
from millpond.model.limits import TOPIC_NAME_CHARS_MAX

TOPIC_NAME_ALLOWED = f"1 to {TOPIC_NAME_CHARS_MAX} of a-z A-Z 0-9 . _ - and neither '.' nor '..'"
_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+")


def is_topic_name(name: str) -> bool:
    return name not in (".", "..") and len(name) <= TOPIC_NAME_CHARS_MAX and _ALLOWED.fullmatch(name) is not None


def check_topic_name(name: str) -> None:
    if not is_topic_name(name):
        shown = name if len(name) <= 80 else name[:80] + "…"
        raise InvalidTopicName(f"{shown!r} ({len(name)} characters) is no topic name; allowed are {TOPIC_NAME_ALLOWED}")
