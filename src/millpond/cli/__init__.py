"""The `millpond` command."""
