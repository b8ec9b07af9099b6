"""The note at the end of a run whose learner limits."""

from __future__ import annotations

from typing import Any

import pytest

from accerl.training.summary import note_on_actors


def run(**phases: float) -> dict[str, Any]:
    """Return the summary of a run of 100 seconds."""
    return {"seconds": 100.0, "phases": phases}


def test_actors_that_wait_for_the_learner_are_too_many() -> None:
    note = note_on_actors(run(env=60.0, infer=70.0, write=10.0, learn=99.0, wait=1.0), 7)
    assert note is not None
    assert "the 7 actors 20% of it; 2 would do" in note
    assert note.endswith("--set runtime.num_actors=2")


@pytest.mark.parametrize(
    ("summary", "actors"),
    [
        (run(env=20.0, learn=60.0, wait=40.0), 7),  # the learner waits for them
        (run(env=400.0, infer=100.0, learn=100.0), 7),  # they are needed
        (run(env=10.0, learn=100.0), 1),
        (run(), 7),
    ],
)
def test_no_actor_is_sent_away_that_is_needed(summary: dict[str, Any], actors: int) -> None:
    assert note_on_actors(summary, actors) is None
