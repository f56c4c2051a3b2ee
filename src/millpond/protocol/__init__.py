"""Bytes to values and back, without sockets: record batches and compression."""
