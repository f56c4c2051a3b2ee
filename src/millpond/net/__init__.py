"""Sockets: length-prefixed frames in, answers out in order, within bounds. Knows nothing of what a frame says."""
