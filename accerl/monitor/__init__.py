"""Monitor: indicators of the run, the features made of them, and the hand-set strategies."""

from accerl.monitor.features import FEATURES, FEATURES_VERSION, Features
from accerl.monitor.indicators import Indicator
from accerl.monitor.monitor import Monitor
from accerl.monitor.stage import TrainingStage
from accerl.monitor.strategy import Strategy

__all__ = [
    "FEATURES",
    "FEATURES_VERSION",
    "Features",
    "Indicator",
    "Monitor",
    "Strategy",
    "TrainingStage",
]
