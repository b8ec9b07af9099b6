"""Sections of the pages of studies that are no contests."""
