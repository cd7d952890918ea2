"""The pictures of the README and of docs/."""
