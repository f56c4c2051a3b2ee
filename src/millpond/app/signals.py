"""Which signals ask a process to stop in order. Driven by process.py and cluster_process.py."""

import signal


def stop_signals() -> list[signal.Signals]:
    """Also that of a terminal which is closed, unless it was ignored before the start, as `nohup` has it."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if is_ignored else [signal.SIGHUP])]
