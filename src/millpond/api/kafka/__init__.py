"""The Kafka wire protocol: one handler a file, found by API key."""
