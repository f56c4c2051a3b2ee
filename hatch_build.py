"""Builds the compiled kernel into a wheel, where there is a C compiler. Without one the wheel is pure, and as good.

It is a plain shared library (src/millpond/pipeline/kernel.py loads it with ctypes): no headers of Python are needed to
build it, and it serves every version of Python. `MILLPOND_PURE=1 pip install ...` leaves it out.
Invariant: whatever goes wrong here, an installation goes on without the kernel.
Driven by hatchling when it makes a wheel, an editable one too, and by `make kernel`, which builds it in place.
"""

import ctypes
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path(__file__).parent / "src" / "millpond" / "pipeline" / "kernel.c"
LIBRARY = SOURCE.with_name("libkernel.so")
FLAGS = ("-std=c99", "-O3", "-Wall", "-Wextra", "-fPIC", "-shared")
SECONDS_MAX = 120


class KernelHook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        missing = build()
        if missing is not None:
            self.app.display_warning(f"built without the compiled kernel, and slower on Spark: {missing}")
        elif version != "editable":
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["artifacts"].append(str(LIBRARY.relative_to(self.root)))
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"


def build() -> str | None:
    """What it is that it could not be built for; None where it was."""
    LIBRARY.unlink(missing_ok=True)
    if os.environ.get("MILLPOND_PURE", "0") not in ("", "0"):
        return "MILLPOND_PURE is set"
    compiler = _compiler()
    if compiler is None:
        return "there is no C compiler (cc, gcc, clang, or what CC names)"
    part = LIBRARY.with_suffix(".part")
    try:
        command = [*compiler, *FLAGS, "-o", str(part), str(SOURCE)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
        if ran.returncode:
            return f"{shlex.join(command)} failed: {ran.stderr.strip()}"
        ctypes.CDLL(str(part)).millpond_interface()
        part.rename(LIBRARY)
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        return str(error)
    finally:
        part.unlink(missing_ok=True)
    return None


def _compiler() -> list[str] | None:
    named = shlex.split(os.environ.get("CC", ""))
    for command in (named, ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]):
            return command
    return None


if __name__ == "__main__":
    sys.exit(build())
