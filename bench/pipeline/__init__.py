"""The data source and sink for Spark beside Spark's own for Kafka, on the same broker, in the same session."""
