"""Pruning: which units go, how the others compensate, and sparse training."""
