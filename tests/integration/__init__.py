"""Tests that need a whole machine: real disks, real processes, real power cuts."""
