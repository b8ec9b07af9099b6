"""Monitor: indicators of the run, the features made of them, and the hand-set strategies."""
