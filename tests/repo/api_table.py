"""The table of APIs in docs/apis.md, as the code has it: `python -m tests.repo.api_table` writes it anew."""

from importlib import import_module
from pathlib import Path

from millpond.api.kafka.served import SERVED
from millpond.protocol.messages.registry import Api

DOCUMENT = Path(__file__).parents[2] / "docs" / "apis.md"
HEAD = """\
# APIs

What Millpond serves of Kafka's wire protocol, and in which versions. The table is made from the code
(`python -m tests.repo.api_table`), and a test holds it to that.

| key | API | versions | flexible from | what it does here |
|---|---|---|---|---|
"""
FOOT = """
An API or a version that is not in the table is not advertised. A request for it ends the connection, as in Kafka; an
ApiVersions of an unknown version is answered with the versions there are. Produce is advertised from version 0, though
3 is the first that is taken: some releases of librdkafka stop compressing where it is more.
"""


def document() -> str:
    return HEAD + "".join(map(_row, SERVED.values())) + FOOT


def _row(api: Api) -> str:
    versions = f"{api.version_min}" if api.version_min == api.version_max else f"{api.version_min} to {api.version_max}"
    flexible = "" if api.flexible_since is None else api.flexible_since
    return f"| {api.key} | {api.name} | {versions} | {flexible} | {_purpose(api)} |\n"


def _purpose(api: Api) -> str:
    """The first line of the handler's docstring, after the API's name."""
    told = import_module(f"millpond.api.kafka.handlers.{api.module}").__doc__ or ""
    return told.partition("\n")[0].partition(": ")[2].rstrip(".")


if __name__ == "__main__":
    DOCUMENT.write_text(document())
