"""Foreign formats, in and out: one file each, with what it reads from and writes to."""
