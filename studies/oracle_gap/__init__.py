"""The oracle gap: how much there is for a controller to win."""
