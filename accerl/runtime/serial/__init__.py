"""The serial runtime: one process, on the virtual or the real clock."""
