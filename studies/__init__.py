"""Studies: what a person runs. The command line, Optuna studies and the equal-budget contest."""
