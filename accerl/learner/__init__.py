"""Learner: corrected rollouts to new weights, in one process or a group of them."""
