"""The study of splits: placers that divide ops against data and tensor parallelism, on eight devices of one server."""
