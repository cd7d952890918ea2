"""What more processes and machines gain in training: parts of an update, measured, and the rest simulated."""
