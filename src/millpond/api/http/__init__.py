"""The HTTP front door: how the broker is, in metrics and in health."""
