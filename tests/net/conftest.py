"""Handlers that answer later, in both ways in which they may."""

import pytest

from tests.net.peers import Desk, PromisingDesk


@pytest.fixture(params=[Desk, PromisingDesk])
def desk(request: pytest.FixtureRequest) -> Desk:
    made: Desk = request.param()
    return made
