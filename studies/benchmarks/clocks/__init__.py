"""Benchmarks of what is predicted: virtual clock and advice, held against the real clock."""
