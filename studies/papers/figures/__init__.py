"""One module for each figure or table of the paper: its runs, and what it claims."""
