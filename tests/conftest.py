"""For all tests: what starts processes counts as slow, so that `make check` stays under a minute."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent
WHOLE_PROCESSES = (ROOT / "interop", ROOT / "cli", ROOT / "integration")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in WHOLE_PROCESSES):
            item.add_marker(pytest.mark.slow)
