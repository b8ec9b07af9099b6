"""Acting: an engine in environments, the rollouts that come of it, and evaluation."""
