"""Addresses taken before anybody is let in."""

import asyncio
import socket

import pytest

from millpond.net.listening import let_go, open_door, reserve


def test_nobody_is_let_in_before_the_door_opens() -> None:
    (listener,) = asyncio.run(reserve("127.0.0.1", 0))
    address = listener.getsockname()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    open_door([listener])
    socket.create_connection(address).close()
    let_go([listener])


def test_an_address_is_taken_from_the_first_moment_on() -> None:
    (listener,) = asyncio.run(reserve("127.0.0.1", 0))
    open_door([listener])
    with pytest.raises(OSError, match="in use"):
        asyncio.run(reserve(*listener.getsockname()))
    let_go([listener])


def test_a_name_takes_all_its_addresses_at_one_port() -> None:
    listeners = asyncio.run(reserve("localhost", 0))
    assert len({listener.getsockname()[1] for listener in listeners}) == 1
    let_go(listeners)
