"""Studies: what papers asked of their placers, asked of ours; each a command that goes on where it was stopped."""
