"""Renderings of a report: HTML, W&B and the terminal."""
