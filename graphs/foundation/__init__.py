"""What all rooms share and is not about graphs: errors, look-up by name, users' own code, files, quantities."""
