"""What the doors have in common: messages, queues and groups, wherever in the cluster they are."""
