"""The gRPC front door: messages, record batches, members of groups, topics; health and reflection."""
