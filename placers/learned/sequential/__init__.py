"""The sequential decoder; ours."""
