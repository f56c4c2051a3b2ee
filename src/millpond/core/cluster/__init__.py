"""How brokers of one cluster know each other."""
