"""Records: run and study folders as typed objects."""
