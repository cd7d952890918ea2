"""Reports and tables, in text and HTML."""
