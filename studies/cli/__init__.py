"""The `accerl` command line."""
