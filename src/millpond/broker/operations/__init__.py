"""One use case a file, called by every front door: produce, fetch, list offsets."""
