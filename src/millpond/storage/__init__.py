"""The disk: segments, indexes, logs, recovery, retention, compaction, checkpoints."""
