"""Tables that the command line prints."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from accerl.runtime.latency import LatencyProfile


def print_profile(profile: LatencyProfile, console: Console) -> None:
    """Print a latency profile: one row per spec, the shared times below."""
    batches = sorted({batch for row in profile.specs for batch in row.infer_us})
    table = Table(title=f"Latency profile {profile.name!r}", title_justify="left")
    table.add_column("spec")
    for batch in batches:
        table.add_column(f"infer us/state, batch {batch}", justify="right")
    table.add_column("publish ms", justify="right")
    table.add_column("distil us/state", justify="right")
    for row in profile.specs:
        times = [f"{row.infer_us[batch]:,.1f}" for batch in batches]
        table.add_row(row.spec.label, *times, f"{row.publish_ms:,.1f}", f"{row.distill_us:,.0f}")
    console.print(table)
    console.print(
        f"  env step {profile.env_step_us:,.0f} us, learner "
        f"{profile.learner_us_per_sample:,.0f} us per sample, "
        f"{profile.num_actors} actor(s) of {profile.agents_per_actor} agent(s) beside the learner. "
        f"{profile.source}."
    )
