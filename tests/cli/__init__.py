"""Tests of the command, started for real."""
