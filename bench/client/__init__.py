"""Millpond's Python client beside those that people use against Kafka, on the same broker, in the same run."""
