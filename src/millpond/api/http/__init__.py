"""The HTTP front door: messages, topics, groups, the cluster; how the broker is, in metrics and in health."""
