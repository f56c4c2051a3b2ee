"""Sends what is told to one stream, in one format, for the whole process.

Driven by process.py, once; a program that has a broker inside sets up its own.
"""

import logging
from typing import TextIO

from millpond.app.settings import LogFormat
from millpond.telemetry.events import LOGGER
from millpond.telemetry.log_lines import JsonLines, TextLines


def set_up_logging(log_format: LogFormat, stream: TextIO) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if log_format is LogFormat.JSON else TextLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    LOGGER.setLevel(logging.INFO)
