"""Comparison: paired statistics, contrasts and verdicts."""
