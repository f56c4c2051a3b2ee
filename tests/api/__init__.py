"""The broker as clients see it: over a real socket, with raw frames and with stock clients."""
