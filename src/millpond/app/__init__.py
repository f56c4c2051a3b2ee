"""The composition root: settings, wiring, start and stop."""
