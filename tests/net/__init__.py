"""Tests of the room that holds the sockets."""
