"""What gRPC clients are generated from; the Python beside it is written by `make proto`."""
