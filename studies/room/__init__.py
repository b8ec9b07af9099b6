"""Room: how much a spec that suits its game and machine gains over one spec for all."""
