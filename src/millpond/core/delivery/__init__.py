"""Messages one by one, on a log: who has which, and what becomes of it; delayed ones, until they are due."""
