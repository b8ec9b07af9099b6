"""Hand-set strategies: when to compress how hard (the paper's section 2.4), by rule family."""

from accerl.monitor.strategies.base import HandSetStrategy
from accerl.monitor.strategies.cap import AdviseKLCapStrategy
from accerl.monitor.strategies.compose import FirstThatFires
from accerl.monitor.strategies.fixed import FixedStrategy, RandomStrategy
from accerl.monitor.strategies.make import STRATEGIES, make_from, make_strategy
from accerl.monitor.strategies.mix import LinearKLMixStrategy
from accerl.monitor.strategies.search import Levels, all_specs
from accerl.monitor.strategies.stages import ThreeStageStrategy
from accerl.monitor.strategies.threshold import KLThresholdStrategy, RewardGapStrategy

__all__ = [
    "STRATEGIES",
    "AdviseKLCapStrategy",
    "FirstThatFires",
    "FixedStrategy",
    "HandSetStrategy",
    "KLThresholdStrategy",
    "Levels",
    "LinearKLMixStrategy",
    "RandomStrategy",
    "RewardGapStrategy",
    "ThreeStageStrategy",
    "all_specs",
    "make_from",
    "make_strategy",
]
