"""Stock Kafka clients against a broker in a process of its own."""
