"""The paper's programming interface (its Tables 1 to 3), over the objects that the rest uses.

::

    policy = AtariCNN(action_space=6)
    chain = CompressorChain()
    chain.add(Pruning(policy, 0.5)).add(Distiller(policy)).add(Quantizer("INT8")).add(ONNX())
    agents = [Actor("pong", chain.policy, rank) for rank in range(2)]
    memory = QManager(agents)
    memory.add_corrector(VTraceCorrector(1.0, 1.0)).add_corrector(ISCorrector(1.0))
    learner = Learner(policy, memory, alg="AC", ddp=True, amp=True)
    monitor = KLMonitor(policy, chain.policy, thre=14.0)
    strategy = Strategy(chain, monitor)
    for actor in agents:
        actor.start()
    learner.start()
    strategy.start()
    result = learner.join()

These objects say what a run consists of; `accerl.training.run.run_training` runs it, in the process
runtime. Its processes do not import the script that starts them: components of your own need a
module.
"""

from accerl.compress.chain import CompressorChain
from accerl.compress.links import ONNX, Eager, LowRank, Pruning, Quantizer, TorchScript
from accerl.compress.links import Distillation as Distiller
from accerl.correct import ISCorrector, VTraceCorrector
from accerl.paper.actors import Actor, AtariCNN, QManager, policy_for
from accerl.paper.learner import Learner
from accerl.paper.strategy import KLMonitor, RewardMonitor, Strategy

__all__ = [
    "ONNX",
    "Actor",
    "AtariCNN",
    "CompressorChain",
    "Distiller",
    "Eager",
    "ISCorrector",
    "KLMonitor",
    "Learner",
    "LowRank",
    "Pruning",
    "QManager",
    "Quantizer",
    "RewardMonitor",
    "Strategy",
    "TorchScript",
    "VTraceCorrector",
    "policy_for",
]
