"""Spark's own `kafka` source and sink: its jars, from Maven Central, kept in the user's cache.

Invariant: a jar that is kept came whole. Driven by suite.py.
"""

import os
import urllib.request
from pathlib import Path

CENTRAL = "https://repo1.maven.org/maven2"
VERSION = "4.2.0"
"""The newest that is there; the connector of a Spark one minor version back runs on this one."""
JARS = (
    f"org/apache/spark/spark-sql-kafka-0-10_2.13/{VERSION}/spark-sql-kafka-0-10_2.13-{VERSION}.jar",
    f"org/apache/spark/spark-token-provider-kafka-0-10_2.13/{VERSION}/spark-token-provider-kafka-0-10_2.13-{VERSION}.jar",
    "org/apache/kafka/kafka-clients/3.9.1/kafka-clients-3.9.1.jar",
    "org/apache/commons/commons-pool2/2.12.1/commons-pool2-2.12.1.jar",
)


def fetched() -> list[Path]:
    """Where they are; none where they cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millpond" / "jars"
    cache.mkdir(parents=True, exist_ok=True)
    found = []
    for jar in JARS:
        path = cache / jar.rpartition("/")[2]
        if not path.exists():
            part = path.with_suffix(".part")
            try:
                urllib.request.urlretrieve(f"{CENTRAL}/{jar}", part)
            except OSError:
                return []
            part.rename(path)
        found.append(path)
    return found
