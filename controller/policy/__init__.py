"""The controller's policy: a small network, its mask, and its shield."""
