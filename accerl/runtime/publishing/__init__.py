"""Publishing: orders, the work that each takes, and the KL probe."""
