"""What runs beside requests: partitions, metadata, groups."""
