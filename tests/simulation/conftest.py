"""For worlds that a planted bug ended in their midst: what they leave is let go of at once, and blamed on nobody."""

import gc
from collections.abc import Iterator

import pytest

IGNORED = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if what_is_left_is_let_go.__name__ in getattr(item, "fixturenames", ()) and has_a_mutant(item):
            item.add_marker(IGNORED)


def has_a_mutant(item: pytest.Item) -> bool:
    return "mutant" in getattr(item, "fixturenames", ())


@pytest.fixture(autouse=True)
def what_is_left_is_let_go(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if has_a_mutant(request.node):
        gc.collect()
