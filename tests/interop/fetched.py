"""Clients that are no Python packages: fetched once, at their pinned versions and checksums, into pytest's cache; kcat
as Debian has it.

A test that needs one is skipped, and says what is missing, where a tool is not installed or the download fails. A
download that is not what was pinned fails the test.
"""

import fcntl
import functools
import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.broker.peers.fetching import CannotFetch, fetch_kcat

HERE = Path(__file__).parent
JAVA, NODE, GO = HERE / "java", HERE / "node", HERE / "go"
DOWNLOAD_SECONDS_MAX = 180.0
READY = "ready"


class NotFetched(Exception):
    """Why; for the reason of a skip."""


def java_classpath(cache: pytest.Cache) -> str:
    """The client of java/Client.java, compiled, and the jars that java/pom.xml names; skips where there can be none."""
    tools = "a JDK of 17 or newer and Maven (Debian: openjdk-17-jdk-headless, maven)"
    _need_tools("java", "javac", "mvn", what=tools)
    _need_version("javac", (17,), what=tools)
    place = cache.mkdir("interop-java")
    jars = _or_skip(place, (JAVA / "pom.xml", JAVA / "jars.sha256"), _fetch_jars)
    classes = _or_skip(place, (JAVA / "Client.java", JAVA / "jars.sha256"), functools.partial(_compile, jars))
    return f"{classes}:{jars}/*"


def node_modules(cache: pytest.Cache) -> Path:
    """The directory of the packages that node/package.json names; skips where there can be none."""
    tools = "Node.js of 20.19 or newer and npm"
    _need_tools("node", "npm", what=tools)
    _need_version("node", (20, 19), what=tools)
    lock = (NODE / "package.json", NODE / "package-lock.json")
    return _or_skip(cache.mkdir("interop-node"), lock, _fetch_node_modules)


def go_client(cache: pytest.Cache) -> Path:
    """The program of go/main.go, built with the modules that go/go.sum names; skips where there can be none."""
    tools = "Go of 1.26 or newer"
    _need_tools("go", what=tools)
    _need_version("go", (1, 26), what=tools, asked="version")
    pins = tuple(GO / name for name in ("main.go", "admin.go", "go.mod", "go.sum"))
    return _or_skip(cache.mkdir("interop-go"), pins, _build_go)


def kcat_program(cache: pytest.Cache) -> str:
    """As installed, or as Debian's packages have it; skips where there can be none."""
    if installed := shutil.which("kcat"):
        return installed
    return str(_or_skip(cache.mkdir("interop-kcat"), (), _unpack_kcat))


def _unpack_kcat(place: Path) -> Path:
    if not (place / READY).exists():
        try:
            fetch_kcat(place)
        except CannotFetch as error:
            raise NotFetched(str(error)) from error
    return place / "kcat"


def _need_tools(*names: str, what: str) -> None:
    missing = [name for name in names if not shutil.which(name)]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on this machine; install {what}")


def _need_version(name: str, least: tuple[int, ...], *, what: str, asked: str = "--version") -> None:
    said = subprocess.run([name, asked], capture_output=True, text=True, check=True).stdout.strip()
    if tuple(map(int, re.findall(r"\d+", said)))[: len(least)] < least:
        pytest.skip(f"{name} on this machine is {said}; install {what}")


def _or_skip(cache: Path, pins: tuple[Path, ...], fetch: Callable[[Path], Path]) -> Path:
    fetched = _once(cache, pins, fetch)
    if isinstance(fetched, NotFetched):
        pytest.skip(f"cannot be downloaded: {fetched}")
    return fetched


@functools.cache
def _once(cache: Path, pins: tuple[Path, ...], fetch: Callable[[Path], Path]) -> Path | NotFetched:
    """One process fetches, others wait; other pins are another directory. A failure is not tried again."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in pins)).hexdigest()[:12]
    place = cache / digest
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            fetched = fetch(place)
        except NotFetched as reason:
            return reason
        (place / READY).touch()
        return fetched


def _fetch_jars(place: Path) -> Path:
    jars = place / "jars"
    if not (place / READY).exists():
        _run(
            "mvn", "-q", "-B", "-f", str(JAVA / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"
        )
        wanted = {name: digest for digest, name in map(str.split, (JAVA / "jars.sha256").read_text().splitlines())}
        assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in jars.iterdir()} == wanted
    return jars


def _compile(jars: Path, place: Path) -> Path:
    if not (place / READY).exists():
        command = ["javac", "-cp", f"{jars}/*", "-d", str(place), str(JAVA / "Client.java")]
        subprocess.run(command, check=True, timeout=DOWNLOAD_SECONDS_MAX)
    return place


def _fetch_node_modules(place: Path) -> Path:
    if not (place / READY).exists():
        for name in ("package.json", "package-lock.json"):
            shutil.copy(NODE / name, place)
        _run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", directory=place)
    return place / "node_modules"


def _build_go(place: Path) -> Path:
    program = place / "client"
    if not (place / READY).exists():
        _run("go", "build", "-mod=readonly", "-buildvcs=false", "-o", str(program), ".", directory=GO)
    return program


def _run(*command: str, directory: Path | None = None) -> None:
    try:
        ran = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotFetched(f"{command[0]} had no answer in {DOWNLOAD_SECONDS_MAX} s") from None
    said = ran.stdout + ran.stderr
    assert "EINTEGRITY" not in said, said
    assert "checksum mismatch" not in said, said
    if ran.returncode:
        raise NotFetched(f"{command[0]} ended with {ran.returncode}: {' '.join(said.split())[:300]}")
