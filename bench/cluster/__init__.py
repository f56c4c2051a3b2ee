"""Three brokers on one machine: how fast they are together, and how long a producer waits when one is gone."""
