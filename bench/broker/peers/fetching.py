"""Fetches the peers into the cache by the package managers of this machine, each for itself; what fails is told.

Kafka by Maven, NATS by Go, Redis and RabbitMQ by Debian's packages, unpacked and not installed: no daemon starts, and
removing the cache removes everything. kcat comes along, the client that drives some of them.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.broker.peers.cache import DEBIAN_ROOT, KCAT_HOME
from bench.broker.peers.kafka import LIBRARIES
from bench.broker.peers.nats import BINARIES

KAFKA_VERSION = "4.1.0"
NATS_VERSION = "v2.15.2"
_FETCH_SECONDS_MAX = 600.0
_POM = f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>kafka-peer</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
  </dependency></dependencies>
</project>
"""


class CannotFetch(Exception):
    """Says what is missing here."""


def fetch_kafka() -> None:
    _need("java", "mvn")
    home = LIBRARIES.parent
    shutil.rmtree(LIBRARIES, ignore_errors=True)
    home.mkdir(parents=True, exist_ok=True)
    (home / "pom.xml").write_text(_POM)
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    _run(["mvn", "-q", "-B", goal, "-DincludeScope=runtime", f"-DoutputDirectory={LIBRARIES}"], home)


def fetch_nats() -> None:
    _need("go")
    BINARIES.mkdir(parents=True, exist_ok=True)
    sources = BINARIES / "go"
    environ = {"GOBIN": str(BINARIES), "GOPATH": str(sources)}
    _run(["go", "install", "-modcacherw", f"github.com/nats-io/nats-server/v2@{NATS_VERSION}"], BINARIES, environ)
    shutil.rmtree(sources, ignore_errors=True)


def fetch_redis() -> None:
    _unpack("redis-server", DEBIAN_ROOT)


def fetch_rabbitmq() -> None:
    _unpack("rabbitmq-server", DEBIAN_ROOT)


def fetch_kcat(home: Path = KCAT_HOME) -> None:
    """`home/kcat` finds the libraries that were unpacked with it."""
    root = home / "root"
    _unpack("kcat", root)
    script = home / "kcat"
    libraries = ":".join(str(each) for each in (root / "usr" / "lib").glob("*-linux-gnu*"))
    script.write_text(f"#!/bin/sh\nLD_LIBRARY_PATH='{libraries}' exec '{root}/usr/bin/kcat' \"$@\"\n")
    script.chmod(0o755)


FETCHES: dict[str, Callable[[], None]] = {
    "kafka": fetch_kafka,
    "redis": fetch_redis,
    "nats": fetch_nats,
    "rabbitmq": fetch_rabbitmq,
    "kcat": fetch_kcat,
}


def _unpack(package: str, root: Path) -> None:
    """With all it depends on that is not installed."""
    _need("apt-get", "dpkg")
    archives = root.parent / package
    shutil.rmtree(archives, ignore_errors=True)
    (archives / "partial").mkdir(parents=True)
    where = [f"-oDir::Cache::archives={archives}", "-oDebug::NoLocking=1"]
    options = ["--download-only", "--reinstall", "--no-install-recommends", "--yes"]
    _run(["apt-get", "install", *options, *where, package], archives)
    root.mkdir(parents=True, exist_ok=True)
    for archive in sorted(archives.glob("*.deb")):
        _run(["dpkg", "-x", str(archive), str(root)], archives)
    shutil.rmtree(archives)


def _need(*programs: str) -> None:
    if missing := [name for name in programs if not shutil.which(name)]:
        raise CannotFetch(f"{' and '.join(missing)} not on this machine")


def _run(command: Sequence[str], directory: Path, environ: dict[str, str] | None = None) -> None:
    try:
        subprocess.run(
            command,
            check=True,
            cwd=directory,
            env={**os.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_FETCH_SECONDS_MAX,
        )
    except subprocess.CalledProcessError as error:
        raise CannotFetch(f"{command[0]} says: {error.output.strip()[-400:]}") from error
    except subprocess.TimeoutExpired as error:
        raise CannotFetch(f"{command[0]} took more than {_FETCH_SECONDS_MAX:.0f} s") from error
