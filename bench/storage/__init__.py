"""The storage engine beside plain system calls."""
