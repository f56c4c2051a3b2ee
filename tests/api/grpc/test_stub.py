"""What others generate from the .proto files, and what is generated from them here."""

import filecmp
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from millpond.testing.broker import InProcessBroker
from tests.api.grpc.asking import SECONDS_MAX, Door

ROOT = Path(__file__).parents[3]
PROTO = ROOT / "src" / "millpond" / "api" / "grpc" / "proto"
NAMES = ("messages", "topics", "groups", "queues", "delays")
GENERATED = [f"{name}_pb2{kind}" for name in NAMES for kind in (".py", ".pyi", "_grpc.py")]
PROGRAM = Path(__file__).with_name("other_program.py")


def test_another_program_with_a_stub_of_its_own(broker: InProcessBroker, tmp_path: Path) -> None:
    files = [str(path.relative_to(PROTO)) for path in sorted(PROTO.rglob("*.proto"))]
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "grpc_python")]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", *outputs, *files], check=True)
    for package in (tmp_path / "millpond", tmp_path / "millpond" / "v1"):
        (package / "__init__.py").touch()  # so that it hides ours
    program = shutil.copy(PROGRAM, tmp_path)
    command = [sys.executable, "-W", "error", program, broker.grpc_address]
    ran = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "100 NOT_FOUND unknown_topic_or_partition\n"), ran.stderr


def test_what_is_generated_is_up_to_date(tmp_path: Path) -> None:
    subprocess.run(["sh", ".ci/proto", str(tmp_path)], cwd=ROOT, check=True)
    _, differing, missing = filecmp.cmpfiles(PROTO / "millpond/v1", tmp_path / "millpond/v1", GENERATED, shallow=False)
    assert not differing + missing, "write it anew: make proto"


def test_health_is_told(door: Door) -> None:
    health: Any = health_pb2_grpc.HealthStub(door.channel)
    for service in ("", *(f"millpond.v1.{name.capitalize()}" for name in NAMES)):
        answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=SECONDS_MAX)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_tells_what_is_served(door: Door) -> None:
    database = ProtoReflectionDescriptorDatabase(door.channel)
    assert {f"millpond.v1.{name.capitalize()}" for name in NAMES} <= set(database.get_services())
    assert "grpc.health.v1.Health" in database.get_services()
    described = database.FindFileContainingSymbol("millpond.v1.Messages")
    assert [method.name for method in described.service[0].method][:2] == ["Produce", "ProduceStream"]
