"""Components of a user's own that a configuration names, so that commands and jobs take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accerl.config import RunConfig
from accerl.correct import CorrectorChain
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.own_code import OwnConfig
from accerl.records import read_json
from accerl.runtime.parts import Parts, with_named
from accerl.settings import configure
from accerl.spec import IDENTITY, CompressionSpec
from accerl.training.run import RunResult, run_training
from accerl.training.saved_policy import evaluate_checkpoint, load_policy
from studies.compare.run import compare
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

INT8 = CompressionSpec(bits=8)
MINE = """
import torch
from dataclasses import replace
from accerl.compress.links import Stage
from accerl.spec import CompressionSpec, Decision

class Zeroing:
    stage = Stage.TUNE

    def apply(self, state):
        with torch.no_grad():
            for weights in state.net.parameters():
                weights.zero_()
        return state

class NoAdvantages:
    def correct(self, experience, targets):
        return targets._replace(advantages=torch.zeros_like(targets.advantages))

class Intervals:
    names = ("intervals",)

    def __init__(self):
        self.count = 0

    def update(self, report, raw):
        self.count += 1
        return {"intervals": float(self.count)}

class Patient:
    name = "patient"
    needs = frozenset({"intervals"})

    def reset(self):
        pass

    def decide(self, features):
        return Decision.of(CompressionSpec(bits=8 if features.raw["intervals"] > 1 else 32))

class Demanding:
    stage = Stage.TUNE

    def __init__(self, strength):
        self.strength = strength
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that holds them, imported by nobody yet."""
    name = f"mine_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def named(seconds: float = 0.02, **own: str) -> RunConfig:
    config = tiny_catch(seconds=seconds, interval_seconds=0.004)
    return replace(config, own=OwnConfig(**{name: (path,) for name, path in own.items()}))


def run(config: RunConfig, out: Path | None = None, **options: Any) -> RunResult:
    return run_training(config, FixedStrategy(INT8), out=out, profile=fast_profile(), **options)


def test_what_published_networks_go_through_acts_evaluates_and_is_loaded(
    tmp_path: Path, module: str
) -> None:
    out = tmp_path / "run"
    run(named(links=f"{module}:Zeroing"), out)
    run(named(0.03, links=f"{module}:Zeroing"), out, resume=True)  # nothing has to come along
    logits, _ = load_policy(out, INT8).infer(np.ones((1, 10, 5), np.uint8))
    assert not logits.any()
    assert evaluate_checkpoint(out, 1, INT8)["cut_off"] == 0
    assert read_json(out / "config.json")["own"]["links"] == [f"{module}:Zeroing"]
    with pytest.raises(UserError, match=r"other settings \(own"):
        run(named(0.04), out, resume=True)


def test_correctors_follow_the_one_that_is_set(tmp_path: Path, module: str) -> None:
    config = named(correctors=f"{module}:NoAdvantages")
    chain = with_named(config).corrector
    assert chain is not None
    names = [type(link).__name__ for link in chain.correctors]
    assert names == ["VTraceCorrector", "ISCorrector", "NoAdvantages"]
    given = with_named(config, Parts(corrector=CorrectorChain())).corrector
    assert given is not None
    assert [type(link).__name__ for link in given.correctors] == ["NoAdvantages"]
    acted = []
    for name, chosen in (("with", config), ("again", config), ("without", named())):
        run(chosen, tmp_path / name)
        acted.append(load_policy(tmp_path / name, IDENTITY).infer(np.ones((1, 10, 5), np.uint8))[0])
    assert np.array_equal(acted[0], acted[1])  # the virtual clock repeats itself
    assert not np.array_equal(acted[0], acted[2])


def test_strategies_find_the_indicators(tmp_path: Path, module: str) -> None:
    config = named(indicators=f"{module}:Intervals")
    counted = [report.indicators["intervals"] for report in run(config).reports]
    assert counted == [1.0, 2.0, 3.0, 4.0, 5.0]
    strategies = ("{}", f"{module}:Patient")
    compared = compare(config, strategies, out=tmp_path / "out", seeds=1, workers=1)
    assert set(compared["strategies"][1]["acted"]) == {"original fp32", "original INT8"}
    with pytest.raises(UserError, match="needs the indicator 'intervals', which does not exist"):
        compare(replace(config, own=OwnConfig()), strategies, out=tmp_path / "none", seeds=1)


def test_a_comparison_names_the_module_that_has_changed(tmp_path: Path, module: str) -> None:
    config, strategies = named(indicators=f"{module}:Intervals"), ("{}", '{"bits": 8}')
    compare(config, strategies, out=tmp_path / "out", seeds=1, workers=1)
    (tmp_path / f"{module}.py").write_text(f"{MINE}\nclass Another: ...\n")
    with pytest.raises(UserError, match=rf"source of {module} '\w+' there, '\w+' here"):
        compare(config, strategies, out=tmp_path / "out", seeds=1)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            {"links": "zeroing"},
            "own: links must be import paths, module:Class, got .*zeroing",
        ),
        ({"links": "{}:Missing"}, "own: link .*Missing.* give the import path"),
        ({"links": "{}:Demanding"}, "own: link .*cannot be made without arguments: .*'strength'"),
        ({"links": "{}:NoAdvantages"}, "NoAdvantages: a link of your own has a `stage`"),
        ({"correctors": "{}:Zeroing"}, "own: corrector .*Zeroing.* has no `correct`"),
    ],
)
def test_mistakes_are_named_before_anything_is_written(
    tmp_path: Path, module: str, own: Mapping[str, str], said: str
) -> None:
    named_so = {name: (path.format(module),) for name, path in own.items()}
    with pytest.raises(UserError, match=said):
        run(replace(named(), own=OwnConfig(**named_so)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_they_are_settings(module: str) -> None:
    config = configure("catch", {"own.links": f"{module}:Zeroing,{module}:Demanding"})
    assert config.own.links == (f"{module}:Zeroing", f"{module}:Demanding")
    assert RunConfig.from_json(config.to_json()) == config
    plain = configure("catch", {})
    assert plain.hash != config.hash
    before = {name: value for name, value in plain.to_json().items() if name != "own"}
    assert RunConfig.from_json(before).hash == plain.hash
