"""Millpond: Kafka's log and SQS's queue in one broker, in readable Python."""

__version__ = "0.1.0"
