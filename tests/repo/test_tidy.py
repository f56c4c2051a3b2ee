"""The source itself, checked: sizes, names, imports, documents. A rule that cannot be checked is not a rule."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from millpond.api.kafka.served import SERVED
from millpond.protocol.messages.cluster_registry import CLUSTER_APIS
from millpond.protocol.messages.registry import APIS

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
DRAWERS = {"utils", "util", "common", "helpers", "helper", "misc", "tools"}
BANNED_CALLS = {
    "time.time": "take a Clock",
    "time.monotonic": "take a Clock",
    "time.sleep": "wait for the fact, through the loop",
    "random.random": "take an Rng",
    "os.urandom": "take an Rng",
    "uuid.uuid4": "take an Rng",
    "datetime.now": "take a Clock",
}


def tracked_files() -> list[Path]:
    """What git knows, and what it would be asked to add; the working tree, not what is ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [ROOT / name for name in names if name and (ROOT / name).exists()]


FILES = tracked_files()
GENERATED = ("_pb2.py", "_pb2_grpc.py")
"""How files end that `make proto` writes."""
PYTHON = [path for path in FILES if path.suffix == ".py" and not path.name.endswith(GENERATED)]
SOURCE = [path for path in PYTHON if path.is_relative_to(ROOT / "src")]
DOCUMENTS = [path for path in FILES if path.suffix == ".md"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


class Contents(NamedTuple):
    """What is asked of a file."""

    docstring: str | None
    functions: list[tuple[str, int]]
    """By name, how many lines each has."""
    calls: list[tuple[int, str]]
    """The line of each call, and what is called: `print`, `time.time`; of longer names nothing is asked."""
    imported: set[str]


@cache
def contents(path: Path) -> Contents:
    """Parsed once for all that is asked."""
    tree = ast.parse(path.read_text())
    found = Contents(ast.get_docstring(tree), [], [], set())
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.functions.append((node.name, (node.end_lineno or node.lineno) - node.lineno + 1))
            case ast.Call(func=ast.Name(id=name)):
                found.calls.append((node.lineno, name))
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)):
                found.calls.append((node.lineno, f"{owner}.{name}"))
            case ast.Import():
                found.imported.update(alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                found.imported.update((module, *(f"{module}.{alias.name}" for alias in node.names)))
    return found


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_a_file_and_its_functions_are_short(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= FILE_LINES_MAX, f"{lines} lines; split it by concept"
    for name, length in contents(path).functions:
        assert length <= FUNCTION_LINES_MAX, f"{name} has {length} lines"


@pytest.mark.parametrize("path", [path for path in PYTHON if path.read_text().strip()], ids=name_of)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert contents(path).docstring, "a module opens with its purpose"


def test_no_drawers() -> None:
    found = [name_of(path) for path in FILES if DRAWERS & {part.split(".")[0] for part in path.relative_to(ROOT).parts}]
    assert not found, "a name says what is in it"


@pytest.mark.parametrize("path", SOURCE, ids=name_of)
def test_time_and_chance_are_arguments(path: Path) -> None:
    for line, called in contents(path).calls:
        assert called not in BANNED_CALLS, f"line {line}: {called}: {BANNED_CALLS[called]}"


@pytest.mark.parametrize("path", SOURCE, ids=name_of)
def test_nothing_prints_or_is_left_to_do(path: Path) -> None:
    for line, called in contents(path).calls:
        assert called != "print", f"line {line} prints"
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text()), "an issue keeps it better"


def test_every_module_is_used() -> None:
    """A source module that nothing imports is dead, or a front door: those are named here."""
    by_key = {f"millpond.api.kafka.handlers.{api.module}" for api in SERVED.values()}
    by_key |= {f"millpond.api.cluster.handlers.{api.module}" for api in CLUSTER_APIS.values()}
    doors = by_key | {"millpond.cli.__main__", "millpond.pipeline.daemon", "millpond.testing.pytest_plugin"}
    imported = {name for path in PYTHON for name in contents(path).imported}
    modules = {module_of(path) for path in SOURCE if path.name != "__init__.py"}
    assert modules - imported - doors == set()


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_a_document_has_one_heading_and_its_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    assert len(re.findall(r"^# ", text, flags=re.MULTILINE)) == 1, "one H1"
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert target.startswith("http") or (path.parent / target).exists(), f"{target} is not there"


def test_the_file_map_names_every_source_file() -> None:
    """Files that are one per API go without saying."""
    drawn = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    apis = {f"{api.module}.py" for api in (*APIS.values(), *CLUSTER_APIS.values())}
    named = [path for path in SOURCE if path.name not in apis | {"__init__.py"}]
    missing = [name_of(path) for path in named if f"`{path.name}`" not in drawn]
    assert not missing, "docs/ARCHITECTURE.md has a file map"


def test_every_capability_has_one_row_in_the_feature_table() -> None:
    text = (ROOT / "docs" / "features.md").read_text()
    ids = re.findall(r"^\| ([A-Z]\d+) \|", text, flags=re.MULTILINE)
    assert len(ids) == len(set(ids))
    letters = {
        "S": 10,
        "P": 6,
        "C": 6,
        "Q": 6,
        "D": 3,
        "L": 1,
        "T": 2,
        "G": 2,
        "K": 7,
        "A": 7,
        "V": 3,
        "M": 2,
        "O": 3,
        "F": 5,
    }
    assert set(ids) == {f"{letter}{number}" for letter, count in letters.items() for number in range(1, count + 1)}
    states = re.findall(r"^\| [A-Z]\d+ \| [^|]+ \| (\w[\w ]*) \|", text, flags=re.MULTILINE)
    assert len(states) == len(ids)
    assert set(states) <= {"works", "partly", "not yet"}


def test_no_path_of_a_machine_and_no_registry_is_named() -> None:
    hosts = ("pypi.org", "pythonhosted", "npmjs", "crates.io", "debian.org", "maven.org")
    for path in FILES:
        if path.suffix in {".py", ".md", ".toml", ".lock", ".cfg", ".yml", ".yaml", ""} and path != Path(__file__):
            text = path.read_text(errors="ignore")
            assert not re.search(r"(?<![\w.])/(home|root|work)/", text), name_of(path)
            assert not any(host in text for host in hosts), name_of(path)


def test_every_verb_of_make_is_there_once_and_says_what_it_is() -> None:
    text = (ROOT / "Makefile").read_text()
    verbs = re.findall(r"^([a-z-]+):", text, flags=re.MULTILINE)
    assert sorted(verbs) == sorted(re.search(r"^\.PHONY: (.*)$", text, flags=re.MULTILINE)[1].split())  # type: ignore[index]
    assert verbs == re.findall(r"^([a-z-]+):.*?## \S", text, flags=re.MULTILINE)
