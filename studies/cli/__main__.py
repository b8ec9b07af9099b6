"""`python -m studies.cli` is the `accerl` command."""

from __future__ import annotations

from studies.cli.main import main

main()
