"""Figures of the studies that are no contests, each from its result."""
