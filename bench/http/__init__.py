"""The HTTP door beside bare endpoints of a framework."""
