"""For all tests: what starts processes or whole brokers counts as slow. Tests of clusters run one after the other, and
those of single processes.

So `make check` stays short, and in `make test` no cluster of one test has to wait for the cluster of another. Beside
them others compute, and give way: a simulated second takes as long as it takes. What fails is named at once, so that a
run that is stopped has said something.
"""

import os
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

settings.register_profile("any", deadline=None)
settings.register_profile("same", deadline=None, derandomize=True)
"""In CI, where a red run must say something of the change: the same examples every time."""
settings.load_profile("any")

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
BESIDE = (
    ROOT / "interop" / "test_chaos.py",
    ROOT / "integration" / "test_power_cuts_ext4.py",
    ROOT / "integration" / "test_bench.py",
)


def is_among(path: Path, places: Sequence[Path]) -> bool:
    return any(path.is_relative_to(each) for each in places)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_among(item.path, TAKE_LONG):
            item.add_marker(pytest.mark.slow)


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
    Those of the pipeline share one Spark session."""

    def _split_scope(self, nodeid: str) -> str:
        path = ROOT.parent / nodeid.partition("::")[0]
        if path in BESIDE:
            return path.name
        if path.is_relative_to(ROOT / "pipeline"):
            return "pipeline"
        if path in WHOLE_CLUSTERS:
            return "clusters"
        return "processes" if is_among(path, WHOLE_PROCESSES) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> TakeTurns | None:
    """With `--dist loadscope`. Marks for groups do nothing with the pytest and xdist of today."""
    return TakeTurns(config, log) if config.getvalue("dist") == "loadscope" else None
