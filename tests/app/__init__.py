"""Tests of what surrounds a broker in its process."""
