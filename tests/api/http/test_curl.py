"""The first three calls of a newcomer, by curl: answered with exactly the fields they were promised."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millpond.testing.broker import InProcessBroker

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "http.md"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")


def curl(*arguments: str) -> Any:  # noqa: ANN401
    command = ["curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "30", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("says", [("--header", "Content-Type: application/json"), ()])
def test_produce_consume_and_subscribe(says: tuple[str, ...]) -> None:
    """Also by who leaves out what the body is."""

    def post(url: str, body: object) -> Any:  # noqa: ANN401
        return curl(*says, "--data", json.dumps(body), url)

    with InProcessBroker(http=True) as fresh:
        first_calls(fresh.http_url, post)


def first_calls(url: str, post: Callable[[str, object], Any]) -> None:
    assert (
        post(f"{url}/api/v1/topics", {"name": "orders", "partitions": 1, "replication_factor": 1})["name"] == "orders"
    )
    produced = post(f"{url}/produce", {"topic": "orders", "key": "table 4", "value": "one coffee"})
    assert produced == {"partition": 0, "offset": 0}
    consumed = curl(f"{url}/consume?topic=orders&partition=0&offset=0&count=10")
    assert set(consumed) == {"messages", "next_offset"}
    assert consumed["next_offset"] == 1
    (message,) = consumed["messages"]
    assert (message["offset"], message["key"], message["value"]) == (0, "table 4", "one coffee")
    subscribed = post(f"{url}/subscribe", {"group": "kitchen", "topics": ["orders"]})
    assert subscribed["assigned_partitions"] == [{"topic": "orders", "partition": 0}]
    assert set(subscribed) == {"assigned_partitions", "member_id", "member_epoch", "heartbeat_interval_ms"}


def test_the_shell_commands_of_the_guide_run_as_they_stand() -> None:
    snippets = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    assert len(snippets) > 1
    with InProcessBroker(http=True) as fresh:
        address = fresh.http_url.removeprefix("http://")
        for snippet in snippets:
            program = snippet.replace("localhost:8080", address).replace("curl ", "curl --silent --show-error ")
            ran = subprocess.run(["bash", "-e", "-c", program], capture_output=True, text=True, check=False)
            assert ran.returncode == 0, ran.stdout + ran.stderr
            assert "one coffee" in ran.stdout
