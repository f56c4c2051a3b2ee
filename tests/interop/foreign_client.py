"""A client in another language: a process that is asked for a verb a line and answers a line, in JSON.

Bytes travel as strings in latin-1. Between the answers come events of the members of flowing groups; a thread reads
both, and gives each member its own.
"""

import itertools
import json
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.interop.facts import FACT_SECONDS_MAX, until
from tests.interop.flowing_group import ASSIGNED, LOST, REVOKED, Move, Story

START_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 20.0

Told = dict[str, Any]
ENDED: Told = {"error": "ProcessEnded"}


class Refused(Exception):
    """What the client raised, by its name there."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class ForeignClient:
    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._answers: queue.Queue[Told] = queue.Queue()
        self._listeners: dict[str, Callable[[Told], None]] = {}
        self._numbers = itertools.count(1)
        self._noise: list[str] = []
        """What is no JSON: warnings, and the last words of a process that fails."""
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._listen, name="foreign-lines")
        self._reader.start()
        ready = self._answers.get(timeout=START_SECONDS_MAX)
        if ready != {"answer": "ready"}:
            self.close()
        assert ready == {"answer": "ready"}, self._noise

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("{"):
                self._noise.append(line)
                continue
            told: Told = json.loads(line)
            if "event" in told:
                self._listeners[told["member"]](told)
            else:
                self._answers.put(told)
        self._answers.put(ENDED)

    def ask(self, verb: str, **arguments: object) -> Any:  # noqa: ANN401 - each verb has an answer of its own
        assert self._process.stdin is not None
        number = next(self._numbers)
        self._process.stdin.write(json.dumps({"number": number, "verb": verb, **arguments}) + "\n")
        self._process.stdin.flush()
        told: Told = {}
        while told.get("number") != number:  # an answer that came too late for its test is for nobody
            told = self._answers.get(timeout=ANSWER_SECONDS_MAX)
            assert told is not ENDED, self._noise
        if "error" in told:
            raise Refused(told["error"], told["message"])
        return told["answer"]

    def listen(self, member: str, listener: Callable[[Told], None]) -> None:
        self._listeners[member] = listener

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(FACT_SECONDS_MAX)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(FACT_SECONDS_MAX)
            self._process.stdout.close()

    def receive(self, consumer: str, count: int) -> list[Told]:
        """The next `count` messages of an open consumer; more than that is an error too."""
        records: list[Told] = []
        for _ in until(lambda: len(records) >= count, what=f"{count} messages received"):
            records.extend(self.ask("poll", name=consumer))
        assert len(records) == count
        return records


class ForeignMember:
    """Of a flowing group, as `flowing_group.Member` is one: what happens to it goes into the group's story."""

    def __init__(
        self, client: ForeignClient, name: str, topic: str, story: Story, settings: Mapping[str, object]
    ) -> None:
        self._client = client
        self._name = name
        self._story = story
        self._tails: dict[int, set[bytes]] = {}
        client.listen(name, self._hear)
        client.ask("join", name=name, topic=topic, settings=settings)

    def leave(self) -> None:
        self._client.ask("leave", name=self._name)
        with self._story.lock:
            self._story.uncommitted.update(*self._tails.values())

    def _hear(self, told: Told) -> None:
        with self._story.lock:
            match told["event"]:
                case "assigned" | "revoked" | "lost" as kind:
                    moved = {"assigned": ASSIGNED, "revoked": REVOKED, "lost": LOST}[kind]
                    self._story.moves.extend(Move(self._name, moved, partition) for partition in told["partitions"])
                case "read":
                    for partition, value, *_ in told["values"]:
                        self._story.read[value.encode("latin-1")] += 1
                        self._tails.setdefault(partition, set()).add(value.encode("latin-1"))
                case "kept":
                    for partition in told["partitions"]:
                        self._tails.pop(partition, None)
                case "refused":
                    self._story.refusals[told["error"]] += 1
                    self._story.uncommitted.update(*self._tails.values())  # it may be the one to read them again
                case _:
                    self._story.errors.append(told)
