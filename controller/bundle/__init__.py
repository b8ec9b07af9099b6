"""Schedule bundles: export, verification, serving, and open-loop schedules."""
