"""The machine that a run is on: cores, memory and what processes use."""
