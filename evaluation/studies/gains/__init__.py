"""The study of gains: what part of what a plan gains in the simulator each way of running it keeps."""
