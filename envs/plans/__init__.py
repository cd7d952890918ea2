"""Plans: what is decided, its validation, and how it was found."""
