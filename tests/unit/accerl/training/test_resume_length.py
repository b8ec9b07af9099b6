"""How long a resumed run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import accerl
from accerl.errors import UserError
from accerl.training.run_folder import read_config


def test_a_run_is_resumed_to_its_own_length_and_not_beyond(tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = accerl.train("catch", seconds=1.0, until_score=9.0, out=out, runtime__eval_episodes=0)
    (out / "summary.json").unlink()  # as if it had been killed
    again = accerl.train("catch", out=out, resume=True, runtime__eval_episodes=0)
    assert again.summary["seconds"] == pytest.approx(first.summary["seconds"])
    assert read_config(out).until_score == 9.0
    over = accerl.train("catch", out=out, resume=True, runtime__eval_episodes=0)
    assert over.summary == again.summary
    with pytest.raises(UserError, match=r"has run for 1.* already"):
        accerl.train("catch", seconds=0.5, out=out, resume=True, runtime__eval_episodes=0)
    longer = accerl.train("catch", seconds=2.0, out=out, resume=True, runtime__eval_episodes=0)
    assert longer.summary["seconds"] > first.summary["seconds"]
