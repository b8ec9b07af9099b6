"""Meta-training: policy gradient, evolution strategies, cloning and pre-training."""
