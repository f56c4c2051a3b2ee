"""Commands in the documents, typed and answered as they stand there.

    ```console
    $ echo 'one coffee' | millpond produce orders
    1 message to orders, partition 0, offset 0
    ```

Invariant: `millpond` runs in this process, everything else as a process of its own; what is printed is compared line by
line, and `…` stands for what differs from one day to the next.
"""

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cli.calling import Command


@dataclass(frozen=True, slots=True)
class Typed:
    line: str
    printed: list[str]


def transcript(path: Path) -> list[Typed]:
    """Every command of a document, in order, and what it is said to print."""
    typed: list[Typed] = []
    for block in re.findall(r"```console\n(.*?)```", path.read_text(), flags=re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                typed.append(Typed(line[2:], []))
            else:
                typed[-1].printed.append(line)
    return typed


def run_line(millpond: Command, line: str) -> list[str]:
    """What a line prints, from the first command of its pipe to the last."""
    words = shlex.split(line, comments=True)  # pipes and redirections stand between spaces
    target: str | None = None
    if ">" in words:
        target = words[words.index(">") + 1]
        words = words[: words.index(">")]
    data, complaints = b"", ""
    while words:
        end = words.index("|") if "|" in words else len(words)
        stage, words = words[:end], words[end + 1 :]
        if stage[0] == "millpond":
            _, out, err = millpond(*stage[1:], stdin=data)
            data, complaints = out.encode(), complaints + err
        else:
            data = subprocess.run(stage, input=data, capture_output=True, check=True).stdout
    if target is not None:
        Path(target).write_bytes(data)
        data = b""
    return (data.decode() + complaints).splitlines()


def is_like(printed: str, said: str) -> bool:
    pattern = ".*".join(map(re.escape, said.rstrip().split("…")))
    return re.fullmatch(pattern, printed.rstrip()) is not None
