"""Tier 0: a closed-form inner run whose optimum is known."""
