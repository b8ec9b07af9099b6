"""Quantisation: activation ranges, static INT8 and simulated bit widths."""
