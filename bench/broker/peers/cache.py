"""Where the peers' software is kept: a directory that git ignores, filled by `make peers`. Nothing else is written."""

import os
import shutil
import subprocess
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".peers"
DEBIAN_ROOT = CACHE / "debian" / "root"
KCAT_HOME = CACHE / "kcat"
HOW = "run `make peers`"


def program(name: str, *places: Path) -> str | None:
    """As installed on this machine, or as fetched."""
    if installed := shutil.which(name):
        return installed
    for place in places:
        if os.access(place / name, os.X_OK):
            return str(place / name)
    return None


def kcat() -> str | None:
    """Not a peer, but the client that drives some of them."""
    return program("kcat", KCAT_HOME)


def said_by(*command: str) -> str:
    environ = {**os.environ, **library_path()}
    return subprocess.run(command, check=True, env=environ, capture_output=True, text=True, timeout=30).stdout


def library_path() -> dict[str, str]:
    """For programs unpacked from Debian's packages."""
    places = [str(each) for each in (DEBIAN_ROOT / "usr" / "lib").glob("*-linux-gnu*")]
    return {"LD_LIBRARY_PATH": os.pathsep.join(places)} if places else {}
