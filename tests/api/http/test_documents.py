"""What the door says of itself: OpenAPI, held to its word by schemathesis, and a page that needs nothing else."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millpond.api.http.application import ROUTES
from millpond.broker.operations import queues
from millpond.testing.broker import InProcessBroker
from tests.api.http.asking import Door

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "http.md"
SEED = 1
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
)


@pytest.mark.slow
def test_schemathesis_finds_no_failure_and_nothing_undocumented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = queues.receive

    async def without_a_wait(*args: Any, wait_ms: int) -> list[queues.Handed]:  # noqa: ANN401
        """Nobody sends meanwhile: each wait would be in vain, and there are many."""
        return await receive(*args, wait_ms=0)

    monkeypatch.setattr(queues, "receive", without_a_wait)
    with InProcessBroker(http=True, configs={"offsets.topic.num.partitions": "1"}) as broker:
        broker.create_topic("orders")
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{broker.http_url}/openapi.json",
            "--phases", "examples,coverage,fuzzing", "--max-examples", "10", "--seed", str(SEED),
            "--request-timeout", "60",
            "--checks", ",".join(CHECKS), "--exclude-path-regex", "/tail$",  # which never ends
            "--generation-database", "none", "--suppress-health-check", "all", "--warnings", "off",
        ]  # fmt: skip
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "No issues found" in ran.stdout


def test_every_route_is_described(door: Door) -> None:
    described = door.done("GET", "/openapi.json")
    there = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert there == {(route.method, route.path) for route in ROUTES}
    operations = [each["operationId"] for methods in described["paths"].values() for each in methods.values()]
    assert len(set(operations)) == len(operations)


def test_what_stands_below_a_field_is_told_and_every_call_has_its_section(door: Door) -> None:
    described = door.done("GET", "/openapi.json")
    schemas = described["components"]["schemas"]
    assert schemas["Growth"]["properties"]["total"]["description"] == "How many the topic shall have."
    assert schemas["Extension"]["properties"]["visibility_ms"]["description"] == "From now on."
    assert schemas["Delivered"]["properties"]["timestamp"]["description"].startswith("Milliseconds since 1970")
    asked = {each["name"]: each.get("description") for each in described["paths"]["/consume"]["get"]["parameters"]}
    assert asked["timestamp"] == "In the place of an offset: the first message that is not older."
    sections = {each["name"] for each in described["tags"]}
    assert {each["tags"][0] for methods in described["paths"].values() for each in methods.values()} == sections


def test_every_route_is_in_the_guide() -> None:
    guide = GUIDE.read_text()
    for route in ROUTES:
        assert f"`{route.method} {route.path}`" in guide


def test_the_page_needs_nothing_from_elsewhere(door: Door) -> None:
    answered = door.get("/docs")
    assert (answered.status, answered.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in answered.headers["content-security-policy"]
    page = answered.body.decode()
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", page)
    assert "http://" not in page
    assert "https://" not in page
    home = door.get("/")
    assert (home.status, home.headers["location"]) == (307, "/docs")
