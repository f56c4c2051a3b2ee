"""What happened, for people and machines: events, and how they look as log lines."""
