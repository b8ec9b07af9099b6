"""How many bits does a trained policy need? After training, and tuned for it (QuaRL)."""
