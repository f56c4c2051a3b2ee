"""`millpond` as a process, in pipes and on a terminal: colours, progress, interrupts, readers that have enough."""

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millpond.client.blocking import Admin
from millpond.testing.broker import InProcessBroker
from tests.api.http.test_delays import HOUR_MS, park
from tests.cli.broker_process import SECONDS_MAX, command, environment
from tests.cli.calling import Command, read_table

INTERRUPTED, PIPE_CLOSED = 130, 141
Process = subprocess.Popen[bytes]


@contextmanager
def started(broker: InProcessBroker, *arguments: str, **streams: int) -> Iterator[Process]:
    """Ended with the test, however that ends."""
    environ = environment({"MILLPOND_BOOTSTRAP": broker.bootstrap})
    del environ["NO_COLOR"]
    pipe = subprocess.PIPE
    given = {"stdin": pipe, "stdout": pipe, "stderr": pipe} | streams
    with subprocess.Popen(command(*arguments), env=environ, **given) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def read_until(descriptor: int, wanted: bytes) -> bytes:
    """Of a terminal or a pipe."""
    seen = b""
    while wanted not in seen:
        assert select.select([descriptor], [], [], SECONDS_MAX)[0], f"only {seen!r} came"
        data = os.read(descriptor, 65_536)
        assert data, f"it ended after {seen!r}"
        seen += data
    return seen


def test_lines_are_sent_and_printed_as_they_come_and_committed(broker: InProcessBroker, millpond: Command) -> None:
    """A slow producer into a group that follows, each in a process of its own."""
    broker.create_topic("tail")
    follow = ("consume", "tail", "--follow", "--group", "tailers")
    with started(broker, *follow) as reader, started(broker, "produce", "tail") as writer:
        assert reader.stdout is not None
        assert writer.stdin is not None
        for word in (b"first\n", b"second\n"):
            writer.stdin.write(word)
            writer.stdin.flush()
            assert read_until(reader.stdout.fileno(), b"\n") == word
        out, err = writer.communicate(timeout=SECONDS_MAX)
        assert (writer.returncode, out, err) == (0, b"2 messages to tail, partition 0, offset 0 to 1\n", b"")
        reader.send_signal(signal.SIGINT)
        out, err = reader.communicate(timeout=SECONDS_MAX)
        assert (reader.returncode, out, err) == (INTERRUPTED, b"", b"")
    assert millpond.document("groups", "lag", "tailers")["partitions"][0]["committed"] == 2


def test_an_interrupt_says_how_much_was_acknowledged(broker: InProcessBroker) -> None:
    with started(broker, "produce", "interrupted") as writer, Admin(broker.bootstrap) as admin:
        assert writer.stdin is not None
        writer.stdin.write(b"kept\n")
        writer.stdin.flush()
        while "interrupted" not in admin.topics():  # a message is on its way
            pass
        writer.send_signal(signal.SIGINT)
        writer.wait(timeout=SECONDS_MAX)
        assert writer.stderr is not None
        said = writer.stderr.read()
        assert writer.returncode == INTERRUPTED
        assert said in [b"millpond: interrupted; %d messages were acknowledged\n" % count for count in (0, 1)]


def test_a_reader_that_has_enough_ends_it_quietly_and_the_group_keeps_its_place(
    broker: InProcessBroker, millpond: Command
) -> None:
    broker.create_topic("much")
    many = b"".join(b"%0100d\n" % number for number in range(600))
    for _ in range(10):
        millpond.ok("produce", "much", stdin=many)
    with started(broker, "consume", "much", "--group", "head") as reader:
        assert reader.stdout is not None
        read_until(reader.stdout.fileno(), b"\n")
        reader.stdout.close()
        assert reader.wait(timeout=SECONDS_MAX) == PIPE_CLOSED
        assert reader.stderr is not None
        assert reader.stderr.read() == b""
    # A pipe and the first read hold less than two polls, and what was not written is not committed.
    assert millpond.document("groups", "lag", "head")["lag"] >= 5_000
    with started(broker, "topics", "list") as lister:
        assert lister.stdout is not None
        lister.stdout.close()
        assert lister.wait(timeout=SECONDS_MAX) == PIPE_CLOSED
        assert lister.stderr is not None
        assert lister.stderr.read() == b""


def test_a_terminal_has_colours_and_a_bar_and_a_pipe_has_neither(
    broker: InProcessBroker, millpond: Command, tmp_path: Path
) -> None:
    """Both in one: a broker's list, and a file sent, on a pseudo-terminal; the same through pipes."""
    (tmp_path / "lines").write_bytes(b"x" * 99 + b"\n" * 20_000)
    arguments = ("produce", "bar", "--file", str(tmp_path / "lines"))
    seen = on_a_terminal(broker, *arguments)
    assert "100%" in seen
    assert "\x1b[" in seen
    assert "messages to bar" in seen
    code, out, err = millpond(*arguments)
    assert (code, err) == (0, "")
    assert out.startswith("20000 messages to bar, partition 0, offset 20000 to 39999")
    doctor = ("doctor", "--data-dir", str(tmp_path), "--kafka", broker.bootstrap, "--http", "off")
    seen = on_a_terminal(broker, *doctor)
    assert "\x1b[32mok" in seen
    assert "\x1b" not in millpond.ok(*doctor)


def on_a_terminal(broker: InProcessBroker, *arguments: str) -> str:
    leader, follower = pty.openpty()
    try:
        with started(broker, *arguments, stdin=follower, stdout=follower, stderr=follower) as process:
            os.close(follower)
            seen = b""
            while True:
                assert select.select([leader], [], [], SECONDS_MAX)[0], f"only {seen!r} came"
                try:
                    data = os.read(leader, 65_536)
                except OSError:  # nobody has the other end any more
                    break
                if not data:
                    break
                seen += data
            assert process.wait(timeout=SECONDS_MAX) == 0
    finally:
        os.close(leader)
    return seen.decode()


def answered(broker: InProcessBroker, answer: bytes, *arguments: str) -> tuple[int, bytes]:
    """What somebody at a terminal was asked before anything was done, and what it came to."""
    leader, follower = pty.openpty()
    try:
        with started(broker, *arguments, stdin=follower) as process:
            os.close(follower)
            assert process.stderr is not None
            asked = read_until(process.stderr.fileno(), b"?")
            os.write(leader, answer)
            return process.wait(timeout=SECONDS_MAX), asked
    finally:
        os.close(leader)


def test_what_cannot_be_undone_is_done_on_a_terminal_only_after_a_yes(
    broker: InProcessBroker, millpond: Command
) -> None:
    (waiting,) = park(broker, "precious", HOUR_MS)
    millpond.ok("groups", "reset", "keepers", "--to", "earliest", "--topic", "precious")
    for arguments, question, is_there in (
        (
            ("delay", "cancel", waiting),
            f"Cancel {waiting}?",
            lambda: millpond.document("delay", "list", "precious")["pending"] == 1,
        ),
        (
            ("groups", "delete", "keepers"),
            "Delete group keepers and its offsets?",
            lambda: millpond("groups", "lag", "keepers")[0] == 0,
        ),
        (
            ("topics", "delete", "precious"),
            "Delete precious and everything in it?",
            lambda: millpond("topics", "describe", "precious")[0] == 0,
        ),
    ):
        for answer, code in ((b"n\n", INTERRUPTED), (b"y\n", 0)):
            found, asked = answered(broker, answer, *arguments)
            assert (found, question in asked.decode()) == (code, True), asked
            assert is_there() == (code == INTERRUPTED)


def test_nobody_is_asked_who_said_yes(broker: InProcessBroker, millpond: Command) -> None:
    (waiting,) = park(broker, "agreed", HOUR_MS)
    millpond.ok("groups", "reset", "agreeing", "--to", "earliest", "--topic", "agreed")
    for arguments in (("delay", "cancel", waiting), ("groups", "delete", "agreeing"), ("topics", "delete", "agreed")):
        assert "?" not in on_a_terminal(broker, *arguments, "--yes")


def test_what_goes_through_a_pipe_can_be_read_by_the_next(broker: InProcessBroker, millpond: Command) -> None:
    """`millpond topics list | …`, wide as it is: no table is cut to a screen that is not there."""
    name = "a-topic-with-a-rather-long-name-" * 5
    broker.create_topic(name)
    with started(broker, "topics", "list") as lister:
        out, err = lister.communicate(timeout=SECONDS_MAX)
    assert (lister.returncode, err) == (0, b"")
    assert name in [row["name"] for row in read_table(out.decode())]
    with started(broker, "topics", "list", "--output", "json") as lister:
        assert name in [each["name"] for each in json.loads(lister.communicate(timeout=SECONDS_MAX)[0])["topics"]]
