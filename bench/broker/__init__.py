"""A broker from outside, beside other brokers on the same machine in the same run."""
