"""The released policy against cheap placers and search, on what it never saw, and with more simulations."""
