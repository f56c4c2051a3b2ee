"""What the HTTP door answers: a file for each kind of path, with the types of what it takes and gives."""
