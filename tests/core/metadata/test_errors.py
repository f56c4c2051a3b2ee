"""Every refusal can be answered on every front door, and the drawing at the head of errors.py is complete."""

import re

import pytest

from millpond.core.metadata import errors
from millpond.model.errors import MillpondError

LEAVES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, MillpondError) and kind.__module__ == errors.__name__
]


def test_the_drawing_names_every_error_in_the_order_of_the_code() -> None:
    assert re.findall(r"──\s(\w+)", errors.__doc__ or "") == [kind.__name__ for kind in LEAVES]


@pytest.mark.parametrize("kind", LEAVES)
def test_every_error_knows_its_answer_on_each_front_door(kind: type[MillpondError]) -> None:
    assert kind.kafka_code > 0
    assert 400 <= kind.http_status < 600
    assert kind.grpc_code.isupper()
    assert isinstance(kind.retriable, bool)
