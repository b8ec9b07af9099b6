"""Tuning of the comparators: search spaces, first guesses, and the search itself."""
