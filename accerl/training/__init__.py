"""Training: one episode driven by a strategy, its records, and what is loaded from them."""
