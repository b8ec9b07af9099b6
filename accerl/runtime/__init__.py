"""Runtimes: how Actor, Learner, Compressor and Monitor are wired into one inner run."""
