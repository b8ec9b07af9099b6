"""The paper's listings (its Tables 1 to 3) run as written, on real processes; and mistakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete

from accerl.compress.links import Link
from accerl.compress.pruning.criteria import PruneMethod
from accerl.correct import ISCorrector, VTraceCorrector
from accerl.envs.config import EnvConfig
from accerl.errors import UserError
from accerl.monitor.compliance import made_up_features
from accerl.monitor.features import Features
from accerl.monitor.strategies import KLThresholdStrategy, RewardGapStrategy
from accerl.monitor.strategy import events_of, overrule, reject
from accerl.networks.graph_policy import Policy
from accerl.paper import (
    ONNX,
    Actor,
    AtariCNN,
    CompressorChain,
    Distiller,
    Eager,
    KLMonitor,
    Learner,
    Pruning,
    QManager,
    Quantizer,
    RewardMonitor,
    Strategy,
    TorchScript,
    policy_for,
)
from accerl.paper.strategy import Acting
from accerl.presets import load_preset
from accerl.records import read_json, read_metrics
from accerl.spec import IDENTITY, CompressionSpec, Decision
from tests.fixtures.chains import as_chain
from tests.fixtures.runs.processes import alive, children, wait_for

LISTING = """
import sys

from accerl.paper import *

if __name__ == "__main__":
    env, seconds, out = sys.argv[1:]
    num_agents, rho, c = 2, 1.0, 1.0
    # Table 1
    policyNet = {policy}
    compreNet = CompressorChain()
    compreNet.add(Pruning(policyNet, 0.5)).add(Distiller(policyNet)) \\
        .add(Quantizer('INT8')).add(ONNX())
    Agents = [Actor(env, compreNet.policy, rank) for rank in range(num_agents)]
    # Table 2
    memory = QManager(Agents)
    memory.add_corrector(VTraceCorrector(rho, c)).add_corrector(ISCorrector(rho))
    learner = Learner(
        policyNet, memory, alg='AC', ddp=True, amp=True, seconds=float(seconds), out=out
    )
    # Table 3
    klMonitor = KLMonitor(policyNet, compreNet.policy, thre={threshold})
    compressStrategy = Strategy(compreNet, klMonitor)
    for actor in Agents:
        actor.start()
    learner.start()
    compressStrategy.start()
    # Rest Code.
    learner.join()
"""
ROOT = Path(__file__).parents[2]
PRUNED = CompressionSpec(sparsity=0.5, bits=8)


def run_script(
    tmp_path: Path, text: str, *arguments: object, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a user's script to its end."""
    script = tmp_path / "listing.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def test_the_listing_runs_on_catch_and_its_monitor_objects(tmp_path: Path) -> None:
    # Nothing is as close as that: the strategy steps back to 16 bits at the second interval.
    text = LISTING.format(policy="policy_for(env)", threshold=1e-9)
    run_script(tmp_path, text, "catch", 5.0, "run")
    summary = read_json(tmp_path / "run" / "summary.json")
    assert summary["learner_updates"] > 2
    assert {"learner", "learner-1", "actor-0", "actor-1"} <= set(summary["rss_bytes_max"])
    specs = [entry["decision"][0]["spec"]["bits"] for entry in summary["decisions"]]
    assert specs == [8, 16]
    config = read_json(tmp_path / "run" / "config.json")
    assert config["learner"]["corrector"] == "vtrace+importance"
    assert config["learner"]["precision"] == "auto"
    assert config["runtime"]["num_learners"] == 2


@pytest.mark.slow
def test_the_readmes_listing_runs_on_pong(tmp_path: Path) -> None:
    readme = (ROOT / "accerl" / "paper" / "README.md").read_text()
    text = readme.split("```python\n")[1].split("```")[0]
    assert text.count("seconds=60") == 1
    done = run_script(tmp_path, text.replace("seconds=60", "seconds=6"))
    assert float(done.stdout) > 10.0
    run = tmp_path / "runs" / "listing"
    summary = read_json(run / "summary.json")
    assert summary["learner_updates"] >= 2
    assert set(summary["spec_seconds"]) == {PRUNED.label}
    reports = list(read_metrics(run))
    assert {"learner-1", "actor-0", "actor-1"} <= set(reports[-1].cpu_seconds)


def chain_of(policy: Policy) -> CompressorChain:
    chain = CompressorChain().add(Pruning(policy, 0.5)).add(Distiller(policy))
    return chain.add(Quantizer("INT8")).add(ONNX())


def memory_of(chain: CompressorChain, *ranks: int) -> QManager:
    return QManager([Actor("catch", chain.policy, rank) for rank in ranks])


def test_a_chain_says_what_a_run_is_asked_for() -> None:
    policy = AtariCNN(4, "net1")
    assert chain_of(policy).spec == PRUNED
    assert CompressorChain().spec == CompressionSpec(graph="eager")
    student = CompressorChain().add(Distiller(policy, student=AtariCNN(4, "net2"))).add(ONNX())
    assert student.spec == CompressionSpec(student="net2")


def test_a_chains_policy_can_be_tried_by_hand() -> None:
    policy = policy_for("catch")
    states = np.random.default_rng(0).integers(0, 2, (16, *policy.observation.shape))
    obs = states.astype(policy.observation.dtype)
    logits, values = chain_of(policy).policy.infer(obs)
    assert (logits.shape, values.shape) == ((16, 3), (16,))
    assert np.isfinite(logits).all()


def test_monitors_make_the_papers_rules() -> None:
    policy = AtariCNN(4, "net3")
    chain = chain_of(policy)
    rule = Strategy(chain, KLMonitor(policy, chain.policy)).rule
    milder = CompressionSpec(sparsity=0.5, bits=16)
    assert rule == KLThresholdStrategy(aggressive=PRUNED, conservative=milder, threshold_nats=14.0)
    denser = CompressionSpec(sparsity=0.2, bits=8)
    rule = Strategy(chain, RewardMonitor(policy, chain.policy)).rule
    assert rule == RewardGapStrategy(aggressive=PRUNED, conservative=denser)
    pruned = CompressorChain().add(Pruning(policy, 0.5)).add(ONNX())
    assert Strategy(pruned, RewardMonitor(policy, pruned.policy)).rule == RewardGapStrategy()


class NotingMonitor(RewardMonitor):
    """Makes a rule of a user's own, which notes what a run reports to it: itself."""

    def rule(self, aggressive: CompressionSpec, conservative: CompressionSpec) -> NotingMonitor:
        self.events: list[dict[str, Any]] = []
        return self

    def reset(self) -> None:
        self.events.clear()

    def decide(self, features: Features) -> Decision:
        return Decision.of(PRUNED)

    def rejected(self, spec: CompressionSpec) -> None:
        self.events.append({"rejected": spec.label})

    def overruled(self, decision: Decision) -> None:
        self.events.append({"overruled": decision.label})


def test_a_rule_hears_what_a_run_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = AtariCNN(4, "net3")
    chain = chain_of(policy)
    acting = Acting(chain.policy, measures=False)
    reject(acting, PRUNED)  # nobody decides yet
    assert events_of(acting) == []
    Strategy(chain, NotingMonitor(policy, chain.policy)).start()
    reject(acting, PRUNED)
    overrule(acting, Decision.of(IDENTITY))
    assert events_of(acting) == [{"rejected": PRUNED.label}, {"overruled": IDENTITY.label}]
    monkeypatch.setattr(NotingMonitor, "decide", lambda *_: None)
    with pytest.raises(UserError, match=r"strategy NotingMonitor: decide\(\) must return"):
        acting.decide(made_up_features())


@pytest.mark.parametrize("links", [[], [Eager()], [TorchScript()], [ONNX()]], ids=str)
def test_a_chain_that_compresses_nothing_cannot_be_relaxed(links: list[Link]) -> None:
    policy, chain = AtariCNN(4, "net3"), CompressorChain(links)
    monitor = KLMonitor(policy, chain.policy)
    with pytest.raises(UserError, match="nothing that could be relaxed"):
        Strategy(chain, monitor)
    Strategy(chain, monitor, CompressionSpec(bits=16))  # it was asked for


def test_what_differs_from_the_preset_is_said() -> None:
    policy = AtariCNN(4, "net3")
    memory = QManager([Actor("CartPole-v1", chain_of(policy).policy, 0)])
    stacked = replace(load_preset("CartPole-v1"), env=EnvConfig(frame_stack=2))
    with pytest.raises(UserError, match=r"the configuration changes env\.frame_stack; leave it"):
        Learner(policy, memory, config=stacked)


def test_memory_keeps_correctors_in_their_order() -> None:
    memory = memory_of(chain_of(AtariCNN(4, "net3")), 0, 1)
    memory.add_corrector(VTraceCorrector(2.0, 1.0)).add_corrector(ISCorrector(1.0))
    assert memory.correctors.correctors == (VTraceCorrector(2.0, 1.0), ISCorrector(1.0))


def test_mistakes_are_told_at_once() -> None:
    policy = policy_for("catch")
    chain, other = chain_of(policy), chain_of(policy)
    with pytest.raises(UserError, match="at least one Actor"):
        QManager([])
    with pytest.raises(UserError, match="one game"):
        QManager([Actor("catch", chain.policy, 0), Actor("pong", chain.policy, 1)])
    with pytest.raises(UserError, match="one chain"):
        QManager([Actor("catch", chain.policy, 0), Actor("catch", other.policy, 1)])
    with pytest.raises(UserError, match="ranks must be 0 to 1"):
        memory_of(chain, 1, 1)
    with pytest.raises(UserError, match="another chain"):
        Strategy(chain, KLMonitor(policy, other.policy))
    with pytest.raises(UserError, match='must be "AC"'):
        Learner(policy, memory_of(chain, 0), alg="DQN")
    with pytest.raises(UserError, match="does not exist; did you mean 'pong'"):
        policy_for("pongg")
    with pytest.raises(UserError, match="got CompressorChain"):
        Actor("catch", chain, 0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="got PolicyNet"):
        KLMonitor(policy, policy)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="another policy than the chain's"):
        Strategy(chain, KLMonitor(policy_for("catch"), chain.policy))
    with pytest.raises(UserError, match="has a method `correct`"):
        memory_of(chain, 0).add_corrector(VTraceCorrector)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="give it a QManager"):
        Learner(policy, chain)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="actors play catch"):
        Learner(policy, memory_of(chain, 0), config=load_preset("cartpole"))
    with pytest.raises(UserError, match="network 'nett' does not exist; did you mean"):
        AtariCNN(6, "nett")
    with pytest.raises(UserError, match="at least 1 action"):
        AtariCNN(0)
    with pytest.raises(UserError, match=r"at least one Actor, got \[1\]"):
        QManager([1])  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="give it a KLMonitor or a RewardMonitor, got int"):
        Strategy(chain, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="Learner: give it a network, got int"):
        Learner(3, memory_of(chain, 0))  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="Discrete space or its number of actions, got 'six'"):
        AtariCNN("six")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="chain: a link has a `stage`"):
        CompressorChain().add(3)  # pyright: ignore[reportArgumentType]
    for links, what in (
        ([Pruning(policy, 0.5, PruneMethod(round_to=8))], "takes the options of Pruning from its"),
        ([Pruning(policy_for("catch"), 0.5)], "Pruning was given another policy than learns"),
    ):
        memory = memory_of(CompressorChain(links), 0)
        memory.agents[0].start()
        with pytest.raises(UserError, match=what):
            Learner(policy, memory, seconds=1.0).start()
    learner = Learner(policy, memory_of(chain, 0, 1), seconds=1.0)
    with pytest.raises(UserError, match="start the actors first; rank 0, 1"):
        learner.start()
    with pytest.raises(UserError, match="was not started"):
        learner.join()


def test_atari_networks_take_a_number_of_actions_or_their_space() -> None:
    sizes = [AtariCNN(given, "net3").num_actions for given in (6, np.int64(6), Discrete(6))]
    assert sizes == [6, 6, 6]


def test_a_policy_of_another_game_does_not_fit() -> None:
    policy = AtariCNN(6, "net3")
    with pytest.raises(UserError, match="catch shows"):
        Learner(policy, memory_of(chain_of(policy), 0))


INTERRUPTED = """
import sys, time
from pathlib import Path
from accerl.paper import *

policy = policy_for("catch")
chain = CompressorChain().add(Pruning(policy, 0.5)).add(Quantizer("INT8")).add(ONNX())
memory = QManager([Actor("catch", chain.policy, 0)])
learner = Learner(policy, memory, ddp=sys.argv[1] != "joined", seconds=600, out="run")
memory.agents[0].start()
learner.start()
while not learner.reports:
    time.sleep(0.05)
print("learning", flush=True)
if sys.argv[1] == "joined":
    learner.join()
else:
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["joined", "elsewhere"])
def test_ctrl_c_ends_the_run_and_leaves_a_checkpoint(tmp_path: Path, where: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    process = subprocess.Popen(
        [sys.executable, script, where],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C reaches a whole group, and pytest is not to be in it
        # A suite started in the background ignores SIGINT, and its children would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "learning\n"
    started = children(process.pid)
    assert len(started) >= 4
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1  # Python's own, of the main thread
    assert "KeyboardInterrupt" in errors
    assert "leaked" not in errors
    wait_for(lambda: not any(map(alive, started)), "the run's processes end")
    assert (tmp_path / "run" / "checkpoint").is_dir()


def without_join() -> str:
    return LISTING.format(policy="policy_for(env)", threshold=14.0).replace("learner.join()", "")


@pytest.mark.slow
def test_a_script_that_never_joins_waits_for_its_run(tmp_path: Path) -> None:
    run_script(tmp_path, without_join(), "catch", 1.5, "run")
    assert read_json(tmp_path / "run" / "summary.json")["learner_updates"] > 0


def test_a_script_that_never_joins_fails_with_its_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_script(tmp_path, without_join(), "catch", 1.5, "file/run", code=2)
    assert done.stderr.startswith("accerl: the run has ended: cannot")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_strategy_may_come_late(tmp_path: Path) -> None:
    policy = policy_for("catch")
    chain = chain_of(policy)
    memory = memory_of(chain, 0)
    memory.agents[0].start()
    learner = Learner(policy, memory, seconds=4.0, out=tmp_path / "run")
    learner.start()
    wait_for(lambda: bool(learner.reports), "an interval")
    Strategy(chain, KLMonitor(policy, chain.policy, thre=1e-9)).start()
    result = learner.join()
    assert result is not None
    bits = [report.decision.mix[0][0].bits for report in result.reports]
    assert (bits[0], bits[-1]) == (8, 16)
    # What was learned is in the policy that was given.
    fresh, learned = as_chain(policy_for("catch")), as_chain(policy)
    assert not torch.equal(fresh.policy_head.weight, learned.policy_head.weight)


def test_what_ends_a_run_is_raised_by_join(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({}))
    policy = policy_for("catch")
    memory = memory_of(chain_of(policy), 0)
    memory.agents[0].start()
    learner = Learner(policy, memory, seconds=1.0, out=tmp_path / "file" / "run")
    learner.start()
    with pytest.raises(UserError, match="cannot"):
        learner.join()
