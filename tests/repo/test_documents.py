"""Snippets in the documents are programs, and run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo import api_table

ROOT = Path(__file__).parents[2]
ELSEWHERE = {ROOT / "docs" / "guides" / "spark.md"}
"""Run by tests/pipeline/test_guide.py, in a Spark session that is there already."""
SNIPPETS = [
    pytest.param(snippet, id=f"{path.relative_to(ROOT)}-{number}")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if path not in ELSEWHERE
    for number, snippet in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL), start=1)
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs_as_it_stands(snippet: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippet], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout, "a snippet shows something"


def test_every_make_verb_the_readme_names_is_there() -> None:
    verbs = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"make ([a-z]+)", (ROOT / "README.md").read_text()))
    assert {"run", "test"} <= named <= verbs


def test_the_table_of_apis_is_the_codes() -> None:
    assert api_table.DOCUMENT.read_text() == api_table.document(), "write it anew: python -m tests.repo.api_table"
