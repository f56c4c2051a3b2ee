"""The `millpond` command apart from what it starts: help, version, mistakes."""

from pathlib import Path

import pytest

from millpond import __version__
from millpond.cli import exit_codes
from millpond.cli.__main__ import main
from millpond.model import errors
from tests.cli.broker_process import run

EXIT_CODES: dict[type[errors.MillpondError], int] = {
    errors.InvalidSetting: 2,
    errors.WrongUse: 2,
    errors.BatchTooLarge: 2,
    errors.OffsetOutOfRange: 2,
    errors.UnknownTopicOrPartition: 3,
    errors.GroupNotFound: 3,
    errors.BrokerUnreachable: 4,
    errors.DeliveryTimedOut: 4,
    errors.NotEnoughReplicas: 4,
    errors.TopicAlreadyExists: 5,
    errors.GroupNotEmpty: 5,
    errors.PolicyViolation: 5,
    errors.DiskFull: 1,
}


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code, *capsys.readouterr()


def test_without_arguments_it_says_what_it_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(capsys)
    assert (code, err) == (0, "")
    assert "Usage: millpond" in out
    assert "Start a broker, and stop it with Ctrl-C." in out
    assert called(capsys, "--help") == (0, out, "")


def test_help_for_up_names_every_setting_its_default_and_the_other_ways_to_say_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = called(capsys, "up", "--help")
    assert (code, err) == (0, "")
    for each in (
        "--config",
        "--data-dir",
        "--kafka",
        "--http",
        "--advertise",
        "--node-id",
        "--set",
        "--insecure",
        "--log-format",
    ):
        assert each in out
    for each in ("./millpond-data", "127.0.0.1:9092", "127.0.0.1:8080", "MILLPOND_SET_NUM_PARTITIONS", "[set]"):
        assert each in out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert called(capsys, "--version") == (0, f"millpond {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["upp"], "'upp'"), (["up", "--wrong"], "--wrong"), (["up", "--node-id"], "--node-id"), (["up", "more"], "more")],
)
def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], named: str) -> None:
    code, out, err = called(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("millpond: ")
    assert named in err
    assert err.endswith(("; see millpond --help\n", "; see millpond up --help\n"))
    assert err.count("\n") == 1


def test_a_setting_that_is_refused_is_one_line_and_nothing_is_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    message = "'num.partition' (--set) is no setting of a broker; did you mean num.partitions?"
    assert called(capsys, "up", "--set", "num.partition=1") == (2, "", f"millpond: {message}\n")
    monkeypatch.setenv("MILLPOND_KAFKA", "0.0.0.0:9092")
    code, out, err = called(capsys, "up")
    assert (code, out) == (2, "")
    assert err.startswith("millpond: kafka is '0.0.0.0:9092' (environment MILLPOND_KAFKA); allowed is ")
    assert list(tmp_path.iterdir()) == []


def test_it_runs_as_a_module() -> None:
    assert run("--version") == (0, f"millpond {__version__}\n", "")


@pytest.mark.parametrize("group", ["topics", "groups", "config", "cluster"])
def test_a_group_of_commands_without_one_shows_its_help(capsys: pytest.CaptureFixture[str], group: str) -> None:
    code, out, err = called(capsys, group)
    assert (code, err) == (2, "")
    assert f"Usage: millpond {group}" in out


def test_every_error_of_the_tree_has_an_exit_code() -> None:
    assert {each.__name__: exit_codes.of(each("")) for each in EXIT_CODES} == {
        each.__name__: code for each, code in EXIT_CODES.items()
    }
