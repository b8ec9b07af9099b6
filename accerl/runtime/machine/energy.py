"""What energy a run has taken, as codecarbon estimates it: the one module that knows codecarbon.

Without a meter in the processor, codecarbon multiplies the load of the whole machine with what its
processor takes at most: whoever computes beside the run is counted too.
"""

from __future__ import annotations

import importlib
import logging
from types import TracebackType
from typing import Any, Self

from accerl.errors import UserError, did_you_mean

EVERY_SECONDS = 5.0
"""between two readings of the machine's load"""


class EnergyMeter:
    """Estimates what the machine takes while a ``with`` block runs.

    Args:
        country: ISO code of three letters, such as DEU: where its power comes from.

    Raises:
        UserError: codecarbon is not installed, or does not know the country.
    """

    def __init__(self, country: str) -> None:
        try:
            codecarbon = importlib.import_module("codecarbon")
            source = importlib.import_module("codecarbon.input").DataSource()
            known = sorted(source.get_global_energy_mix_data())  # imports pandas
        except ImportError as error:
            raise UserError("--energy needs codecarbon: pip install codecarbon") from error
        if country not in known:
            hint = did_you_mean(country.upper(), known).partition("allowed: ")[0]
            raise UserError(
                f"--energy {country!r}: codecarbon knows no such country; {hint}give its ISO "
                "code of three letters, such as DEU or USA"
            )
        logging.getLogger("codecarbon").setLevel(logging.ERROR)  # it reports on every reading
        self._country = country
        self._tracker: Any = codecarbon.OfflineEmissionsTracker(
            country_iso_code=country,
            tracking_mode="machine",
            measure_power_secs=EVERY_SECONDS,
            output_methods=[],
            log_level="error",
            allow_multiple_runs=True,
        )
        self._version = str(codecarbon.__version__)

    def __enter__(self) -> Self:
        self._tracker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tracker.stop()

    def estimate(self) -> dict[str, Any]:
        """Return, once the block is over, kilowatt-hours by part, and kilograms of CO2."""
        found = self._tracker.final_emissions_data
        return {
            "by": f"codecarbon {self._version}: an estimate for the whole machine",
            "seconds": float(found.duration),
            "kwh": float(found.energy_consumed),
            "cpu_kwh": float(found.cpu_energy),
            "gpu_kwh": float(found.gpu_energy),
            "ram_kwh": float(found.ram_energy),
            "kg_co2e": float(found.emissions),
            "country": self._country,
        }
