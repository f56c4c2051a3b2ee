"""Kafka's requests and responses, one file per API, and the compiler that turns their declarations into code. Pure."""
