"""Requests that no connection is behind."""

from collections.abc import Callable

from millpond.api.kafka.context import Context


class Unconnected:
    peer = ("", 0)
    extra = None

    def close(self) -> None:
        """There is nothing to close."""

    def answer_alone(self) -> None:
        """Every answer is alone."""

    def when_lost(self, then: Callable[[], object]) -> None:
        """It never will be."""


def asked_by_nobody(version: int) -> Context:
    return Context(version, "", Unconnected())
