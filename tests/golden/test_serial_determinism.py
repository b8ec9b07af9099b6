"""Serial runs are bit-identical for equal (config, seed), and only for those.

Two runs are compared with each other: a stored hash would depend on the CPU it was made on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from accerl.runtime.run import IntervalReport
from accerl.runtime.serial.run import SerialRun
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.run import make_run
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch, weights_hash

INT8 = CompressionSpec(bits=8)
NET3 = CompressionSpec(student="net3", bits=8)
SCRIPTS = {
    "identity": [Decision.of(IDENTITY)] * 3,
    "int8": [Decision.of(INT8)] * 3,
    "net3": [Decision.of(NET3)] * 3,
    "mix": [Decision(((NET3, 0.6), (IDENTITY, 0.4)))] * 3,
    "switching": [Decision.of(spec) for spec in (CompressionSpec(sparsity=0.5), INT8, NET3)],
}


def record(script: str, seed: int) -> tuple[list[str], str]:
    """Metrics lines and the hash of the final weights of a run."""
    run = make_run(tiny_catch(seed), fast_profile())
    assert isinstance(run, SerialRun)
    reports: list[IntervalReport] = []
    for decision in SCRIPTS[script]:
        run.apply(decision)
        reports.append(run.advance(0.012))
    digest = weights_hash(run.learner.policy)
    run.close()
    assert sum(report.learner_updates for report in reports) > 10
    return [json.dumps(report.to_json(), sort_keys=True) for report in reports], digest


@pytest.mark.parametrize("script", SCRIPTS)
def test_equal_seeds_give_equal_bits_and_others_do_not(script: str) -> None:
    first, second, other = record(script, 3), record(script, 3), record(script, 4)
    assert first == second
    assert first[1] != other[1]
    # Every interval's learning differs; what the clock charges may well be the same.
    assert all(mine != theirs for mine, theirs in zip(first[0], other[0], strict=True))


@pytest.mark.slow
def test_another_process_with_another_hash_seed_makes_the_same_run() -> None:
    code = (
        "import json, sys\n"
        "from tests.golden.test_serial_determinism import record\n"
        "print(json.dumps(record('mix', 5)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(record("mix", 5)))
