"""The network that chaos cuts: what is dropped is not heard, and everything else is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_exactly_the_ways_that_are_dropped_are_not_heard() -> None:
    command = [sys.executable, "-m", "tests.machine.reached"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    if "why_not" in found:
        pytest.skip(found["why_not"])
    for name, cut, failed in found["trials"]:
        assert sorted(failed) == cut, name
