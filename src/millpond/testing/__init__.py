"""Shipped test tools: a deterministic event loop, a simulated network and a simulated disk."""
