"""The outer problem as a gymnasium.Env over an inner run, and its instances."""
