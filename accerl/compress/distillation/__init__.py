"""Distillation: students that learn from the learner's policy."""
