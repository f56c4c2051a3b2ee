"""Settings are refused at the door, with the key, the value and what is allowed."""

import dataclasses
import math
from typing import Any

import pytest

from millpond.model.errors import InvalidSetting
from millpond.model.limits import BATCH_BYTES_MAX, KIB, SEGMENT_BYTES_MAX
from millpond.storage.settings import DAY_MS, Flush, LogSettings

RANGES: dict[str, tuple[int, int | None]] = {
    "flush_interval_ms": (1, DAY_MS),
    "segment_bytes": (KIB, SEGMENT_BYTES_MAX),
    "segment_ms": (1, None),
    "index_interval_bytes": (0, SEGMENT_BYTES_MAX),
    "batch_bytes_max": (61, BATCH_BYTES_MAX),
    "producer_expiry_ms": (1, None),
    "retention_ms": (0, None),
    "retention_bytes": (0, None),
    "compaction_lag_ms_min": (0, None),
    "compaction_dirty_ratio_min": (0, 1),
    "compaction_keys_max": (1, None),
    "checkpoint_bytes": (1, None),
    "tombstone_grace_ms": (0, None),
}
LOWER = [
    (key, least, f"at least {least}" if most is None else f"{least} to {most}") for key, (least, most) in RANGES.items()
]
UPPER = [(key, most, f"{least} to {most}") for key, (least, most) in RANGES.items() if most is not None]


def settings_with(key: str, value: Any) -> LogSettings:  # noqa: ANN401 - any setting
    return LogSettings(**{key: value})


@pytest.mark.parametrize(("key", "least", "allowed"), LOWER)
def test_a_value_below_its_range_is_refused_with_key_value_and_range(key: str, least: int, allowed: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        settings_with(key, least - 1)
    assert str(caught.value) == f"{key} is {least - 1}; allowed is {allowed}"


@pytest.mark.parametrize(("key", "most", "allowed"), UPPER)
def test_a_value_above_its_range_is_refused_with_key_value_and_range(key: str, most: int, allowed: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        settings_with(key, most + 1)
    assert str(caught.value) == f"{key} is {most + 1}; allowed is {allowed}"


@pytest.mark.parametrize("key", RANGES)
def test_both_ends_of_a_range_are_allowed(key: str) -> None:
    least, most = RANGES[key]
    assert getattr(settings_with(key, least), key) == least
    highest = most if most is not None else 2**63
    assert getattr(settings_with(key, highest), key) == highest


def test_every_number_among_the_settings_has_a_range() -> None:
    """A setting added without a bound shows up here."""
    numbers = {field.name for field in dataclasses.fields(LogSettings) if field.type not in (bool, Flush)}
    assert numbers == RANGES.keys()


def test_a_ratio_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="compaction_dirty_ratio_min is nan"):
        LogSettings(compaction_dirty_ratio_min=math.nan)


@pytest.mark.parametrize("key", ["retention_ms", "retention_bytes"])
def test_retention_may_be_without_a_bound(key: str) -> None:
    assert getattr(settings_with(key, None), key) is None


def test_settings_do_not_change_once_made() -> None:
    settings = LogSettings()
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.segment_bytes = 1  # type: ignore[misc]
