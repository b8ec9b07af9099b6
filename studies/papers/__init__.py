"""The papers' figures and tables, run again: their claims, what comes out here, verdicts."""
