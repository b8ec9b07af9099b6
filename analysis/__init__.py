"""Run records -> statistics, figures, a local HTML report and offline W&B runs.

Everything here is a view of run directories: it imports records and specs, never the system that
wrote them.
"""
