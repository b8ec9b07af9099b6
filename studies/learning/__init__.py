"""Learning curves of single runs as jobs: what several studies are made of."""
