"""For all tests: what starts processes or whole brokers counts as slow. Tests of clusters run one after the other, and
those of single processes.

So `make check` stays short, and in `make test` no cluster of one test has to wait for the cluster of another. Beside
them others compute, and give way: a simulated second takes as long as it takes. What takes longest begins first, so
that no core is idle in the end. What fails is named at once, so that a run that is stopped has said something.
"""

import os
import signal
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

settings.register_profile("any", deadline=None)
settings.register_profile("same", deadline=None, derandomize=True)
"""In CI, where a red run must say something of the change: the same examples every time."""
settings.load_profile("any")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell's background job: programs that tests start would inherit it, and not hear an interrupt either.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent
WHOLE_CLUSTERS = (
    ROOT / "cli" / "test_cluster.py",
    ROOT / "cli" / "test_discovery.py",
    ROOT / "cli" / "test_three_brokers.py",
    ROOT / "client" / "test_cluster.py",
    ROOT / "interop" / "test_cluster_clients.py",
    ROOT / "interop" / "test_cluster_shares.py",
    ROOT / "interop" / "test_lost_disk.py",
)
WHOLE_PROCESSES = (ROOT / "interop", ROOT / "cli", ROOT / "integration", *WHOLE_CLUSTERS)

TAKE_LONG = (
    *WHOLE_PROCESSES,
    ROOT / "api",
    ROOT / "broker" / "test_cluster_on_sockets.py",
    ROOT / "broker" / "test_discovery_on_sockets.py",
    ROOT / "client",
    ROOT / "core" / "replication" / "test_model.py",
    ROOT / "pipeline",
    ROOT / "repo" / "test_documents.py",
    ROOT / "simulation",
    ROOT / "telemetry",
    ROOT / "testing" / "test_broker.py",
)
"""Left out of `make check`, which is to take less than a minute."""
COMPUTE = tuple(ROOT / each for each in ("core", "protocol", "simulation", "storage"))
LONGEST_FIRST = (
    ROOT / "interop" / "test_chaos.py",
    ROOT / "pipeline",
    *WHOLE_CLUSTERS,
    ROOT / "cli",
    ROOT / "interop",
    ROOT / "integration",
    ROOT / "simulation",
    ROOT / "core",
    ROOT / "fuzz",
    ROOT / "api" / "http" / "test_documents.py",
    ROOT / "broker" / "test_delays.py",
    ROOT / "protocol",
    ROOT / "storage",
    ROOT / "repo",
)
"""Chaos waits for three minutes, and asks for little of the cores meanwhile."""
BESIDE = (
    ROOT / "interop" / "test_chaos.py",
    ROOT / "integration" / "test_power_cuts_ext4.py",
    ROOT / "integration" / "test_bench.py",
)
ONE_BY_ONE = (ROOT / "simulation", ROOT / "core", ROOT / "fuzz")
"""Files of single tests that take as long as others do whole."""


@cache
def is_among(path: Path, places: tuple[Path, ...]) -> bool:
    """Asked of each of ten thousand tests, in each worker, and again and again of the same files."""
    return any(path.is_relative_to(each) for each in places)


@cache
def turn_of(path: Path) -> int:
    turns = (turn for turn, place in enumerate(LONGEST_FIRST) if path.is_relative_to(place))
    return next(turns, len(LONGEST_FIRST))


@pytest.hookimpl(trylast=True)  # behind pytest-randomly, which shuffles
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_among(item.path, TAKE_LONG):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: turn_of(item.path))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What only computes leaves the cores to who starts processes, where that can be taken back afterwards."""
    if os.geteuid() != 0 or not is_among(item.path, COMPUTE):
        return (yield)
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, usual + 10)
    try:
        return (yield)
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, usual)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        sys.stderr.write(f"\n{report.nodeid} failed ({report.when})\n")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests measured by the way, each with `record_property`: a `figure` for people, or simulated `seeds`."""
    noted = [each for report in terminalreporter.stats.get("passed", ()) for each in report.user_properties]
    if seeds := sum(value for name, value in noted if name == "seeds"):
        cpu_seconds = sum(value for name, value in noted if name == "seeds_cpu_seconds")
        terminalreporter.write_line(
            f"{seeds} simulated clusters, a minute each: {seeds / cpu_seconds:.2f} a second of CPU"
        )
    for name, value in noted:
        if name == "figure":
            terminalreporter.write_line(value)


class TakeTurns(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Tests of clusters run one after the other, and those of processes; beside them what takes long and claims little.
    Those of the pipeline share one Spark session; those of other files share what their file sets up."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return scope_of(file) or nodeid

    def mark_test_complete(self, node: object, item_index: int, duration: float = 0) -> None:
        """And forgets what is done: xdist counts all that a worker was ever given after each test."""
        super().mark_test_complete(node, item_index, duration)
        given = self.assigned_work[node]
        scope = self._split_scope(self.registered_collections[node][item_index])
        if all(given[scope].values()):
            del given[scope]


@cache
def scope_of(file: str) -> str | None:
    """What one worker does in a row; none, where each test of the file is on its own."""
    path = ROOT.parent / file
    if path in BESIDE:
        return path.name
    if path.is_relative_to(ROOT / "pipeline"):
        return "pipeline"
    if path in WHOLE_CLUSTERS:
        return "clusters"
    if is_among(path, WHOLE_PROCESSES):
        return "processes"
    return None if is_among(path, ONE_BY_ONE) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> TakeTurns | None:
    """With `--dist loadscope`. Marks for groups do nothing with the pytest and xdist of today."""
    return TakeTurns(config, log) if config.getvalue("dist") == "loadscope" else None
