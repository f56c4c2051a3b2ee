"""Queues on a log: who has which message of a partition for how long, and what becomes of it."""
