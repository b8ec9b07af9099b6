"""How long a resumed run goes on."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import accerl
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.runtime.conditions import Condition, Conditions
from accerl.runtime.run import IntervalReport
from accerl.settings import configure
from accerl.training.run import run_training
from accerl.training.run_folder import read_config
from analysis.records.load import load_run
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch


def test_a_run_with_a_setting_that_is_refused_today_can_still_go_on(tmp_path: Path) -> None:
    out, idle = tmp_path / "run", {"learner__anneal_to": 0.5, "runtime__eval_episodes": 0}
    with pytest.raises(UserError, match=r"learner\.anneal_to would do nothing"):
        accerl.train("catch", seconds=1.0, out=out, **idle)
    with pytest.raises(UserError, match="holds no run with a checkpoint"):
        accerl.train("catch", out=out, resume=True, **idle)
    assert not out.exists()
    given = {name.replace("__", "."): value for name, value in idle.items()}
    old = run_training(configure("catch", given, seconds=1.0), FixedStrategy(), out=out)
    again = accerl.train("catch", out=out, resume=True, **idle)
    assert again.summary["seconds"] == old.summary["seconds"]


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


def test_an_interrupted_run_is_not_resumed_to_less_than_it_has_run(tmp_path: Path) -> None:
    config, strategy, profile = tiny_catch(), FixedStrategy(), fast_profile()
    done = run_training(config, strategy, out=tmp_path, profile=profile)
    (tmp_path / "summary.json").unlink()  # as if it had been killed
    shorter = replace(config, seconds=0.5 * config.seconds)
    with pytest.raises(UserError, match=r"has run for .* s already; give more --seconds"):
        run_training(shorter, strategy, out=tmp_path, profile=profile, resume=True)
    assert read_config(tmp_path).seconds == config.seconds
    again = run_training(config, strategy, out=tmp_path, profile=profile, resume=True)
    assert again.summary["seconds"] == done.summary["seconds"]


def test_a_checkpoint_is_written_after_what_it_knows_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may take what no fsync has sent to the disk."""
    synced, really = [], os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    run_training(tiny_catch(), FixedStrategy(), out=tmp_path / "run", profile=fast_profile())
    places = [place for place, name in enumerate(synced) if name == "tensors.safetensors"]
    assert len(places) >= 2
    assert all(synced[place - 1] == "metrics.jsonl" for place in places)


def test_a_summary_that_was_cut_off_is_to_be_deleted(tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = accerl.train("catch", seconds=1.0, out=out, runtime__eval_episodes=0)
    (out / "summary.json").write_text('{"seconds"')
    with pytest.raises(UserError, match=r"summary.json is not valid JSON.* Delete it: --resume"):
        accerl.train("catch", out=out, resume=True, runtime__eval_episodes=0)
    (out / "summary.json").unlink()
    again = accerl.train("catch", out=out, resume=True, runtime__eval_episodes=0)
    assert again.summary["seconds"] == first.summary["seconds"]


def test_a_run_with_an_event_beyond_its_game_s_length_is_resumed_to_its_own(tmp_path: Path) -> None:
    out, late = tmp_path / "run", {"at_seconds": 22.0, "lasts_seconds": 1.0}
    given = {
        "conditions__events": [{**late, "kind": "co-tenant", "amount": 1}],
        "runtime__eval_episodes": 0,
    }
    # Every score is above this, so it ends after its first interval with one.
    first = accerl.train("catch", seconds=25.0, until_score=-9.0, out=out, **given)
    (out / "summary.json").unlink()
    assert accerl.train("catch", out=out, resume=True, **given).summary == first.summary
    assert read_config(out).seconds == 25.0
    with pytest.raises(UserError, match="begins at 22 s, and the run ends at 20 s"):
        accerl.train("catch", out=tmp_path / "other", **given)


def test_an_interrupted_longer_run_has_no_summary_of_the_shorter_one(tmp_path: Path) -> None:
    config, strategy, profile = tiny_catch(), FixedStrategy(), fast_profile()
    run_training(config, strategy, out=tmp_path, profile=profile)

    def interrupt(report: IntervalReport) -> None:
        raise KeyboardInterrupt

    longer = replace(config, seconds=2.0 * config.seconds)
    with pytest.raises(KeyboardInterrupt):
        run_training(
            longer, strategy, out=tmp_path, profile=profile, resume=True, on_interval=interrupt
        )
    record = load_run(tmp_path)
    assert not record.finished
    assert record.summary["seconds"] == record.reports[-1].total_seconds > config.seconds
    done = run_training(longer, strategy, out=tmp_path, profile=profile, resume=True)
    assert load_run(tmp_path).summary["seconds"] == done.summary["seconds"]


def test_an_event_that_lasts_beyond_a_resumption_is_counted_once(tmp_path: Path) -> None:
    event = Condition(at_seconds=0.01, lasts_seconds=1.0, kind="co-tenant", amount=1)
    config = replace(tiny_catch(), conditions=Conditions((event,)))
    longer = replace(config, seconds=2.0 * config.seconds)
    for each, resume in ((config, False), (longer, True)):
        result = run_training(
            each, FixedStrategy(), out=tmp_path, profile=fast_profile(), resume=resume
        )
        assert [met["at_seconds"] for met in result.summary["conditions"]] == [0.01]


def test_equal_events_are_all_in_the_summary(tmp_path: Path) -> None:
    event = Condition(at_seconds=0.01, lasts_seconds=1.0, kind="co-tenant", amount=1)
    config = replace(tiny_catch(), conditions=Conditions((event, event)))
    result = run_training(config, FixedStrategy(), out=tmp_path, profile=fast_profile())
    assert len(result.reports) > 1
    assert len(result.summary["conditions"]) == 2
