"""A short run of `make chaos`: faults from a seed under load, and nothing lost or doubled."""

from pathlib import Path

import pytest

from tests.interop import chaos

SEED = 2
"""Begins with a kill of all three."""


@pytest.mark.slow
def test_nothing_is_lost_in_a_short_chaos(tmp_path: Path) -> None:
    story: list[str] = []
    chaos.run(tmp_path, seed=SEED, seconds=25, tell=story.append)
    assert "all there once and in order" in story[-1], story
