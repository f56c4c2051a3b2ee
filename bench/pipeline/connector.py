"""Spark's own `kafka` source and sink: its jars, from Maven, kept in the user's cache.

`MAVEN_REPOSITORY=https://... python -m bench.pipeline.connector` fetches them.
Invariant: a jar that is kept came whole.
"""

import os
import sys
import urllib.request
from pathlib import Path

REPOSITORY = "MAVEN_REPOSITORY"
"""The variable that says where they are to be had: the address of Maven Central, or of a mirror."""
VERSION = "4.2.0"
"""The newest that is there; the connector of a Spark one minor version back runs on this one."""
TOKENS = "4.0.0"
"""What it needs besides, for clusters with delegation tokens."""
JARS = (
    f"org/apache/spark/spark-sql-kafka-0-10_2.13/{VERSION}/spark-sql-kafka-0-10_2.13-{VERSION}.jar",
    f"org/apache/spark/spark-token-provider-kafka-0-10_2.13/{TOKENS}/spark-token-provider-kafka-0-10_2.13-{TOKENS}.jar",
    "org/apache/kafka/kafka-clients/3.9.1/kafka-clients-3.9.1.jar",
    "org/apache/commons/commons-pool2/2.12.1/commons-pool2-2.12.1.jar",
)


def _places() -> list[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millpond" / "jars"
    return [cache / jar.rpartition("/")[2] for jar in JARS]


def kept() -> list[Path]:
    """Where they are, if they were fetched before."""
    return [path for path in _places() if all(each.exists() for each in _places())]


def fetched() -> list[Path]:
    """Where they are; none where they cannot be had."""
    repository = os.environ.get(REPOSITORY)
    if repository is None:
        return kept()
    for jar, path in zip(JARS, _places(), strict=True):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            try:
                urllib.request.urlretrieve(f"{repository}/{jar}", part)
            except OSError:
                return []
            part.rename(path)
    return _places()


if __name__ == "__main__":
    sys.stdout.writelines(f"{path}\n" for path in fetched())
