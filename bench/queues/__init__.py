"""Queues from outside: sent, received and acknowledged, beside other brokers on the same machine in the same run."""
