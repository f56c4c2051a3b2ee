"""The shell around the cores: drivers run them and hold the partitions, operations are the use cases of all doors."""
