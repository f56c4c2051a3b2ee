"""The door for other brokers of the cluster."""
