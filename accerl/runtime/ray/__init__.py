"""The Ray runtime: the learner in this process, everything else on the nodes of a cluster."""
