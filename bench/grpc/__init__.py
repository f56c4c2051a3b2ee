"""The gRPC door: raw batches, messages one by one and in streams."""
