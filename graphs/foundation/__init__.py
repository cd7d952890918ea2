"""What knows no graph: errors, look-up by name, a user's own code, files and documents, quantities."""
