"""Jobs: inner runs as typed data, and the processes that run them."""
