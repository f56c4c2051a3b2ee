"""Where PySpark looks for the data source `millpond`: it imports every module of this kind of name at first use."""

from millpond.pipeline.source import MillpondSource as DefaultSource

__all__ = ["DefaultSource"]
