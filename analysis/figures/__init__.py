"""Figures, as Vega-Lite specifications."""
