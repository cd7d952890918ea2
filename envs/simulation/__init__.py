"""The simulator: a problem laid out as records, the only event loop, and its queues."""
