"""Machines that decide, and nothing else: events and `now` in, effects out. Pure; broker/drivers runs them."""
