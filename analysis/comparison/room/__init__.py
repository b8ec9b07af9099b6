"""What the study of room finds: what there is to win, what a new game leaves, what KL says."""
