"""Records of results: who placed what, with what it was made, kept in journals."""
