"""Check: whether an engine acts as the network it was made from, before anything acts with it."""

from __future__ import annotations

import numpy as np
import torch

from accerl.compress.artifact import Artifact
from accerl.compress.engine import make_engine
from accerl.errors import CannotCompressError, one_line
from accerl.networks.graph_policy import Policy

EXPECTED_KL_NATS = {32: 1e-3, 16: 0.1, 8: 0.25}
"""largest mean KL by bits. What was measured is a hundredth of it: this finds what is broken, and
leaves it to the monitor to say what is merely rough"""
EXPECTED_ERROR = {32: 1e-3, 16: 0.05, 8: 0.1}
"""largest error of the logits as a share of their spread over actions, for an untrained policy is
so close to uniform that its KL to anything is small; measured: 0 to 0.007 and 0.004 to 0.025"""

LAST_DIGIT = 1e-6
"""what float32 logits near 1 can resolve"""


class EngineMismatchError(CannotCompressError):
    """An engine acts unlike its network; a run acts with something else then."""


class StudentDivergedError(CannotCompressError):
    """A student's weights are NaN or infinite, and the learner's are not."""


def check_engine(artifact: Artifact, net: Policy, obs: np.ndarray) -> float:
    """Return the mean KL(net || engine) over states obs [N, *shape], in nats.

    Args:
        artifact: what was exported.
        net: the float32 network it was exported from: distilled, pruned, factorised.
        obs: recorded states.

    Raises:
        EngineMismatchError: the engine does not run, or its policy is not finite or too far away.
    """
    with torch.no_grad():
        states = torch.from_numpy(np.array(obs)).to(net.device)  # a forward may write into it
        logits = net(states)[0].float().cpu().numpy()
    if not np.isfinite(logits).all():
        raise EngineMismatchError(
            "the network itself puts out NaN or infinite logits on recorded states; training has "
            "diverged (lower the learning rate), or it divides by 0 or takes the logarithm of 0"
        )
    label, limit = artifact.spec.label, EXPECTED_KL_NATS[artifact.spec.bits]
    advice = mend = "compress less, or act in torch (graph 'eager')"
    if artifact.spec.graph == "eager":
        advice = "compress less, or mend a forward that acts otherwise when it is called again"
        mend = "torch traces it: use x.shape[0], not len(x), and no branches on numbers"
    try:
        acted, values = make_engine(artifact).infer(obs)
    except Exception as error:  # whatever a runtime throws: none of it may end a run
        raise EngineMismatchError(f"{label} does not run: {one_line(error)}; {mend}") from error
    if not (np.isfinite(acted).all() and np.isfinite(values).all()):
        raise EngineMismatchError(f"{label} puts out NaN or infinite values; {advice}")
    kl = float(kl_nats(logits, acted).mean())
    if not kl <= limit:
        raise EngineMismatchError(
            f"{label} is {kl:.3g} nats away from its network, {limit:g} at most were expected; "
            f"{advice}"
        )
    error, size = _rms(_centred(logits - acted)), _rms(_centred(logits))
    limit = EXPECTED_ERROR[artifact.spec.bits]
    # A policy whose units are all dead has no spread; its engine may still round the last digit.
    if not error <= limit * size + LAST_DIGIT:
        raise EngineMismatchError(
            f"{label} has errors of {error / max(size, LAST_DIGIT):.0%} of its logits' spread, "
            f"{limit:.0%} at most were expected; {advice}"
        )
    return kl


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values).mean()))


def _centred(logits: np.ndarray) -> np.ndarray:
    """Return logits less their mean over actions, which a softmax does not see."""
    return logits.astype(np.float64) - logits.mean(-1, keepdims=True)


def kl_nats(logits: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return KL(softmax(logits) || softmax(other)) of each row, [B] in nats; never negative."""
    log_p, log_q = _log_softmax(logits), _log_softmax(other)
    return np.maximum((np.exp(log_p) * (log_p - log_q)).sum(-1), 0.0)  # rounding: -1e-17


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
