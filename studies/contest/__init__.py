"""The contest: its plan, its entrants, their training and the test."""
