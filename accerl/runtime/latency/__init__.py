"""Latency profiles: measuring them, comparing them, predicting with them."""
