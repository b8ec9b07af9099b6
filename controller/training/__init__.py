"""Meta-training: what is trained, by policy gradient or by evolution strategies."""
