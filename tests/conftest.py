"""For all tests: what starts processes counts as slow, and runs one after the other but for groups of their own.

So `make check` stays short, and in `make test` no cluster of one test has to wait for the cluster of another.
"""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("no test asserts a time", deadline=None)
settings.load_profile("no test asserts a time")

ROOT = Path(__file__).parent
WHOLE_PROCESSES = (ROOT / "interop", ROOT / "cli", ROOT / "integration")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in WHOLE_PROCESSES):
            item.add_marker(pytest.mark.slow)
            if item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group("processes"))
