"""What opening the logs came to: in one sentence for the start, and an event for each log that says more.

Pure, but for the telling. Driven by process.py.
"""

from collections.abc import Iterable

from millpond.model.values import dataclass
from millpond.storage.log import Log
from millpond.telemetry.events import LOG_DAMAGED, LOG_RECOVERED, tell

NamedLogs = Iterable[tuple[str, Log]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySummary:
    logs: int
    logs_unclean: int
    logs_damaged: int
    bytes_scanned: int
    bytes_cut: int

    @classmethod
    def of(cls, logs: NamedLogs) -> "RecoverySummary":
        reports = [log.report for _, log in logs]
        return cls(
            logs=len(reports),
            logs_unclean=sum(not report.clean for report in reports),
            logs_damaged=sum(bool(report.damages) for report in reports),
            bytes_scanned=sum(report.bytes_scanned for report in reports),
            bytes_cut=sum(report.bytes_cut for report in reports),
        )

    def __str__(self) -> str:
        if self.logs_damaged:
            return f"{self.logs_unclean} recovered, {self.logs_damaged} of them damaged"
        if self.logs_unclean:
            return f"{self.logs_unclean} recovered, {self.bytes_scanned} bytes checked, {self.bytes_cut} cut off"
        return "every log was closed in order" if self.logs else "there are none yet"

    @staticmethod
    def tell_each(logs: NamedLogs) -> None:
        for name, log in logs:
            report = log.report
            if not report.clean:
                tell(
                    LOG_RECOVERED,
                    partition=name,
                    bytes_scanned=report.bytes_scanned,
                    bytes_cut=report.bytes_cut,
                    cut_reason=report.cut_reason,
                    next_offset=log.next_offset,
                )
            for damage in report.damages:
                tell(
                    LOG_DAMAGED,
                    partition=name,
                    file=damage.file,
                    position=damage.position,
                    offset=damage.offset,
                    reason=damage.reason,
                )
