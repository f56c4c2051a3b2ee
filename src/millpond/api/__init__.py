"""The front doors: each translates its protocol to operations and back, and knows nothing of the others."""
