"""Words every room shares: ids, errors, limits, and the ports to the outside. Imports nothing of ours."""
