"""Tier 0: inner runs in closed form, of drawn games on drawn machines."""
