"""The HTTP door of `millpond up`: found in its first line, refused with a reason, stopped with the rest."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.cli.broker_process import BrokerProcess, run
from tests.telemetry.scrapes import get, scrape


def test_the_first_line_says_where_metrics_are(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--http", "127.0.0.1:0") as broker:
        url = f"http://{broker.started['http']}"
        assert scrape(url).value("millpond_ready") == 1
        assert '"ready":true' in get(f"{url}/health")
        lines = broker.stop()
    assert [line["event"] for line in lines] == ["broker_stopping", "broker_stopped"]


def test_signals_stay_the_brokers_own(tmp_path: Path) -> None:
    """An ASGI server likes to take them."""
    with BrokerProcess(tmp_path, "--http", "127.0.0.1:0") as broker:
        get(f"http://{broker.started['http']}/health")
        broker.send(signal.SIGINT)
        code, lines, err = broker.wait()
    assert (code, err) == (0, "")
    assert lines[0]["signal"] == "SIGINT"
    assert lines[-1]["event"] == "broker_stopped"


def test_it_can_be_off(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--http", "off") as broker:
        assert broker.started["http"] == "off"
        broker.stop()


def test_an_http_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, out, err = run("up", "--data-dir", str(tmp_path), "--kafka", "127.0.0.1:0", "--http", address)
    assert (code, out) == (1, "")
    assert err == (
        f"millpond: {address} is taken by another program; stop that one, or choose another port with --http, "
        "or switch it off with --http off\n"
    )
    with BrokerProcess(tmp_path) as broker:  # nothing was left behind
        broker.stop()


def test_an_http_address_that_this_machine_does_not_have(tmp_path: Path) -> None:
    arguments = ("--kafka", "127.0.0.1:0", "--http", "192.0.2.1:8080", "--insecure")
    code, _, err = run("up", "--data-dir", str(tmp_path), *arguments)
    assert code == 1
    assert err == (
        "millpond: 192.0.2.1:8080 is no address of this machine; give one that is with --http, "
        "or switch it off with --http off\n"
    )


def test_a_door_beyond_this_machine_is_warned_of(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--insecure", "--http", "0.0.0.0:0") as broker:
        assert broker.lines_until("http_open_to_everybody")[-1]["level"] == "warning"
        broker.stop()


def test_neither_the_command_nor_a_start_loads_what_serves_http() -> None:
    for module in ("millpond.cli.__main__", "millpond.app.process"):
        loaded = "{'httptools', 'prometheus_client'} & sys.modules.keys()"
        program = f"import sys, {module}; sys.exit(bool({loaded}))"
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0, module
