"""A task takes over the connections that the task before it has left, unless that one failed."""

from unittest.mock import patch

import pytest

from millpond.pipeline import link
from millpond.pipeline.options import Connection
from millpond.testing.broker import InProcessBroker


def test_a_task_gets_the_link_of_the_one_before_it_unless_that_failed(broker: InProcessBroker) -> None:
    connection = Connection(broker.bootstrap)
    with patch("millpond.pipeline.link.TaskContext.get", return_value="a task"):
        with link.task_link(connection) as first:
            pass
        with pytest.raises(ZeroDivisionError), link.task_link(connection) as second:
            _ = 1 // 0
        with link.task_link(connection) as third:
            pass
    with link.task_link(connection) as fourth:  # of no task: nobody comes after it
        pass
    assert second is first
    assert third is not first
    assert fourth is third
    assert link._left == {}
    assert not any(each._thread.is_alive() for each in (first, third))
