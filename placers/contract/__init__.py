"""What a placer is, for those who write one and those who call one."""
