"""The guide to Spark: its snippets run as they stand, in the one session, and its table of options is the code's.

`python -m tests.pipeline.test_guide` writes the table anew.
"""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millpond.pipeline.options import GUIDE

DOCUMENT = Path(__file__).parents[2] / "docs" / "guides" / "spark.md"
TABLE_AFTER = "<!-- made from the code: python -m tests.pipeline.test_guide -->\n\n"
SNIPPETS = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)


def table() -> str:
    rows = [f"| `{name}` | {default} | {meaning} |\n" for name, (default, meaning) in GUIDE.items()]
    return "".join(["| option | default | what it does |\n|---|---|---|\n", *rows])


def with_table(text: str) -> str:
    head, _, tail = text.partition(TABLE_AFTER)
    _, _, after = tail.partition("\n\n")
    return head + TABLE_AFTER + table() + (f"\n{after}" if after else "")


def test_the_table_of_options_is_the_codes() -> None:
    assert DOCUMENT.read_text() == with_table(DOCUMENT.read_text()), (
        "write it anew: python -m tests.pipeline.test_guide"
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_runs_as_it_stands(number: int, spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    exec(SNIPPETS[number], {})
    assert capfd.readouterr().out, "a snippet shows something"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
