"""`accerl bench`: what operations, runs and predictions are measured by."""
