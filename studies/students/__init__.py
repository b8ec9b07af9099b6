"""Do small actors learn as well? Learning curves of compressed actors, spec by spec."""
