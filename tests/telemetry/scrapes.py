"""Metrics as a Prometheus server sees them: asked for over HTTP, parsed by its own client library."""

import urllib.request
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

SECONDS_MAX = 30
"""Only a broker that hangs is waited for so long."""


class Scrape:
    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self._samples, f"{key} twice"
                self._samples[key] = sample.value

    def value(self, name: str, **labels: str) -> float:
        return self._samples[name, frozenset(labels.items())]

    def find(self, name: str, **labels: str) -> float | None:
        return self._samples.get((name, frozenset(labels.items())))

    def all_of(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        return {labels: value for (each, labels), value in self._samples.items() if each == name}


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:
        text: str = answer.read().decode()
        return text


def scrape(url: str) -> Scrape:
    """`url` is the HTTP door's, without a path."""
    return Scrape(get(f"{url}/metrics"))


def scrape_until(url: str, fact: Callable[[Scrape], bool]) -> Scrape:
    """For facts that come a moment after a client has its answer."""
    while not fact(found := scrape(url)):
        pass
    return found
