"""Spark's own `kafka` source and sink: its jars, fetched by Maven, kept in the user's cache.

`python -m bench.pipeline.connector` fetches them, where Maven's client is installed; it knows where from.
Invariant: jars that are kept came whole, and all of them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "4.2.0"
"""The newest that is there; the connector of a Spark one minor version back runs on this one."""
TOKENS = "4.0.0"
"""What it needs besides, for clusters with delegation tokens."""
JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", TOKENS),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
SECONDS_MAX = 300


def _places() -> list[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millpond" / "jars"
    return [cache / f"{name}-{version}.jar" for _, name, version in JARS]


def kept() -> list[Path]:
    """Where they are, if they were fetched before."""
    return [path for path in _places() if all(each.exists() for each in _places())]


def fetched() -> list[Path]:
    """Where they are; none where they cannot be had."""
    maven = shutil.which("mvn")
    if kept() or maven is None:
        return kept()
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "pom.xml"
        project.write_text(_project())
        command = [
            maven,
            "-q",
            "-B",
            "-f",
            str(project),
            COPY,
            "-DexcludeTransitive=true",
            f"-DoutputDirectory={folder}",
        ]
        try:
            ran = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return []
        if ran.returncode:
            return []
        for path in _places():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            shutil.copy(Path(folder) / path.name, part)
            part.rename(path)
    return kept()


def _project() -> str:
    """What Maven is asked for: these four, and nothing that Spark has already."""
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{alone}"
        "</dependency>"
        for group, name, version in JARS
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>millpond</groupId><artifactId>bench</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


if __name__ == "__main__":
    found = fetched()
    sys.stdout.writelines(f"{path}\n" for path in found)
    if not found:
        sys.exit(
            "Spark's kafka connector could not be fetched: install Maven (mvn), and see that it reaches its repository"
        )
