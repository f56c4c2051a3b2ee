"""The drawing at the head of model/errors.py is the tree, and every leaf can be answered on every front door."""

import re

import pytest

from millpond.model import errors
from millpond.model.errors import LogCorrupted, MillpondError


def descendants(kind: type[MillpondError]) -> list[type[MillpondError]]:
    return [each for child in kind.__subclasses__() for each in (child, *descendants(child))]


def test_the_drawing_names_every_error_in_the_order_of_the_code() -> None:
    drawn = re.findall(r"──\s(\w+)", errors.__doc__ or "")
    assert drawn == [each.__name__ for each in descendants(MillpondError)]


@pytest.mark.parametrize("kind", [each for each in descendants(MillpondError) if not each.__subclasses__()])
def test_every_leaf_knows_its_answer_on_each_front_door(kind: type[MillpondError]) -> None:
    assert kind.kafka_code > 0
    assert 400 <= kind.http_status < 600
    assert kind.grpc_code.isupper()
    assert isinstance(kind.retriable, bool)


def test_corruption_on_disk_says_where_it_is() -> None:
    error = LogCorrupted("t-0/00.log", 4096, "checksum 1 is not 2")
    assert (error.file, error.position) == ("t-0/00.log", 4096)
    assert "t-0/00.log is corrupt at byte 4096: checksum 1 is not 2" in str(error)
