"""How messages reach those who work on them, and what has to be kept meanwhile.

Pure; driven by broker/drivers.
"""
