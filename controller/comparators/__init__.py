"""Strategies that learn within one run, which a trained controller has to beat."""
