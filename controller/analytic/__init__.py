"""Tier 0: inner runs in closed form; of the games of `model` the optimum is known."""
