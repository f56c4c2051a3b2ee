"""Tries a network's ways, in a process of its own: who hears whom while some are dropped.

    python -m tests.machine.reached        prints JSON: for each trial the ways that were dropped, and those that failed

A packet is sent on every way while some are dropped, and another one when all are open again; what came before the
second one was heard. So nothing waits for silence.
Driven by test_network.py.
"""

import ctypes
import json
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import permutations

from tests.machine.network import CLIENTS, Network, Way, private_network

HOSTS = (1, 2, 3)
PORT = 5000
HEARD_SECONDS_MAX = 20.0


@contextmanager
def socket_on(network: Network, host: int) -> Iterator[socket.socket]:
    """A socket stays in the namespace it was made in."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as own:
        if host != CLIENTS:
            with open(network.namespace(host)) as there:
                assert libc.setns(there.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        assert libc.setns(own.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
    with made:
        made.bind((network.address(host), PORT))
        made.settimeout(HEARD_SECONDS_MAX)
        yield made


def failed(network: Network, sockets: dict[int, socket.socket], cut: Iterable[Way]) -> list[Way]:
    """The ways on which nothing is heard while these are cut."""
    network.drop(cut)
    ways = list(permutations(sockets, 2))
    for word in (b"first", b"second"):
        for source, to in ways:
            try:
                sockets[source].sendto(b"%d %s" % (source, word), (network.address(to), PORT))
            except OSError:
                assert word == b"first", "all ways are open"
        network.drop(())
    heard = set()
    for to, listening in sockets.items():
        seconds = 0
        while seconds < len(sockets) - 1:
            who, _, what = listening.recv(100).partition(b" ")
            seconds += what == b"second"
            if what == b"first":
                heard.add((int(who), to))
    return [way for way in ways if way not in heard]


def main() -> int:
    network = private_network(HOSTS)
    if isinstance(network, str):
        sys.stdout.write(json.dumps({"why_not": network}))
        return 0
    trials: dict[str, list[Way]] = {
        "none": [],
        "all of one": network.around(1),
        "between two": network.around(1, others=[2]),
        "what one says": [(3, CLIENTS), (3, 1), (3, 2)],
        "what one hears": [(CLIENTS, 2), (1, 2), (3, 2)],
    }
    found = []
    with ExitStack() as stack:
        sockets = {each: stack.enter_context(socket_on(network, each)) for each in (CLIENTS, *HOSTS)}
        for has_nft in {network.has_nft, False}:
            network.has_nft = has_nft
            for name, cut in trials.items():
                found.append((f"{name}, {'nft' if has_nft else 'routes'}", sorted(cut), failed(network, sockets, cut)))
    sys.stdout.write(json.dumps({"trials": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
