"""Tests that a component of your own must pass: subclass the class of its kind in a pytest file.

============================ ===================================================================
class                        what it checks
============================ ===================================================================
`LinkCompliance`             a compressor: a link of a `CompressorChain`
`CorrectorCompliance`        a corrector: a link of a `CorrectorChain`
`IndicatorCompliance`        an indicator of a `Monitor`
`StrategyCompliance`         a strategy, hand-set or learned
============================ ===================================================================

::

    from accerl.testing import StrategyCompliance

    class TestMine(StrategyCompliance):
        def make(self):
            return MyStrategy()
"""

from accerl.compress.compliance import LinkCompliance
from accerl.correct.compliance import CorrectorCompliance
from accerl.monitor.compliance import IndicatorCompliance, StrategyCompliance

CompressorCompliance = LinkCompliance
"""a compressor is a link"""

__all__ = [
    "CompressorCompliance",
    "CorrectorCompliance",
    "IndicatorCompliance",
    "LinkCompliance",
    "StrategyCompliance",
]
