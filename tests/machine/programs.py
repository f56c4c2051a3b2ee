"""The machine's own programs, run one at a time; what goes wrong is told in their words."""

import shutil
import subprocess


def run(*command: str, told: str = "") -> str:
    """What it printed. `told` is what it reads."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=told)
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


def missing(*programs: str) -> str:
    """Those that are not installed, as a sentence names them; empty where all are."""
    return " and ".join(program for program in programs if shutil.which(program) is None)
