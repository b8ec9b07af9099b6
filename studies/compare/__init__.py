"""Strategies side by side on one game and machine: the user's own contest."""
