"""The protobuf package of this name."""
