"""The Advanced Indicator: a controller that believes something of every spec, and learned why."""
