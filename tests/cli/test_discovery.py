"""`millpond up --discovery multicast`: three processes on this machine that are told node ids, and no addresses."""

import asyncio
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from millpond.core.cluster.discovery import MulticastGroup
from millpond.net.multicast import join_group
from tests.cli.broker_process import SECONDS_MAX, Line, command, environment, run


class Member:
    def __init__(self, node_id: int, directory: Path, group: MulticastGroup) -> None:
        """Does not wait for it."""
        own = ("--data-dir", str(directory / str(node_id)), "--kafka", "127.0.0.1:0", "--node-id", str(node_id))
        shared = ("--peers", "1,2,3", "--discovery", str(group), "--cluster-id", "shop", "--log-format", "json")
        secret = directory / "secret"
        secret.write_text("a secret of these three brokers")
        self._process = subprocess.Popen(
            command("up", *own, *shared, "--cluster-secret-file", str(secret)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    def line_of(self, event: str) -> Line:
        assert self._process.stdout is not None
        while text := self._process.stdout.readline():
            line: Line = json.loads(text)
            if line["event"] == event:
                return line
        raise AssertionError(f"it ended: {self._process.communicate(timeout=SECONDS_MAX)[1]}")

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=SECONDS_MAX)
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=SECONDS_MAX)


@contextmanager
def member(node_id: int, directory: Path, group: MulticastGroup) -> Iterator[Member]:
    process = Member(node_id, directory, group)
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture
def group() -> MulticastGroup:
    """With a port that nobody uses. Skips where the machine passes no multicast on loopback."""

    async def hear_oneself(group: MulticastGroup) -> None:
        heard = asyncio.Event()
        multicast = await join_group(
            group.host, group.port, interface="127.0.0.1", on_datagram=lambda data, sender: heard.set()
        )
        try:
            async with asyncio.timeout(SECONDS_MAX):
                multicast.send(b"anybody?")
                assert multicast.trouble is None, multicast.trouble
                await heard.wait()
        finally:
            multicast.close()

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as chosen:
        chosen.bind(("127.0.0.1", 0))
        group = MulticastGroup(port=chosen.getsockname()[1])
    try:
        asyncio.run(hear_oneself(group))
    except (OSError, AssertionError) as error:
        pytest.skip(f"this machine has no multicast on loopback: {error!r}")
    return group


def test_three_processes_find_each_other_and_one_that_comes_back_on_another_port(
    tmp_path: Path, group: MulticastGroup
) -> None:
    with ExitStack() as stack:
        members = {each: stack.enter_context(member(each, tmp_path, group)) for each in (1, 2, 3)}
        started = {each: process.line_of("broker_started") for each, process in members.items()}
        members[3].kill()
        back = stack.enter_context(member(3, tmp_path, group))
        again = back.line_of("broker_started")
        assert again["port"] != started[3]["port"]
        code, out, err = run("cluster", "status", "--bootstrap", str(started[1]["address"]), "--output", "json")
        assert (code, err) == (0, "")
        seen = json.loads(out)
        assert [each["node_id"] for each in seen["quorum"]["voters"]] == [1, 2, 3]
        assert {each["node_id"]: each["address"] for each in seen["brokers"]}[3] == again["address"]
        assert [process.stop() for process in (members[1], members[2], back)] == [0, 0, 0]


def test_one_that_waits_says_for_whom_and_stops_when_it_is_told_to(tmp_path: Path, group: MulticastGroup) -> None:
    with member(1, tmp_path, group) as alone:
        waits = alone.line_of("founders_missing")
        assert (waits["missing"], waits["source"]) == ("2,3", str(group))
        assert alone.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--discovery", "multicast"), "write for instance --peers 1,2,3"),
        (("--peers", "1,2,3"), "peers names broker 1 without an address"),
        (("--cluster", "3", "--discovery", "multicast"), "leave those out"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    code, _, err = run("up", "--data-dir", str(tmp_path), "--kafka", "127.0.0.1:0", *arguments)
    assert code == 2
    assert said in err
