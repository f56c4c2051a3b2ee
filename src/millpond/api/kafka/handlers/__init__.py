"""One file per API, named as the message it answers."""
