"""The Advanced Indicator that comes with AcceRL: meta-trained on tier 0, for use without a study.

`accerl train GAME --strategy indicator` acts with it. It was made, and its figures were printed, by

    accerl controller train --iterations 120 --draws 200 --out DIR
    python -m controller.shipped DIR

in a quarter of an hour of a core. The figures are of the indicator alone, without the shield that
it ships under.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import read_json, write_json
from controller.arguments import one_line_mistakes, read_folder
from controller.bundle.read import read_bundle
from controller.indicator.strategy import AdvancedIndicator, IndicatorSettings
from controller.shield import Shielded

SHIPPED = Path(__file__).with_name("shipped.json")


def shipped_indicator(**settings: Any) -> Shielded:
    """Return it as a strategy, under the shield of the paper's threshold.

    Args:
        settings: of `IndicatorSettings`, in place of those that it was trained with; specs as JSON.

    Raises:
        UserError: there is no such setting, or a value lies outside what is allowed.
    """
    params = read_json(SHIPPED)["params"]
    known = [field.name for field in fields(IndicatorSettings)]
    for name in settings:
        if name not in known:
            raise UserError(f"indicator: there is no setting {name!r}; it has {', '.join(known)}")
    return Shielded(AdvancedIndicator.from_params(_with(params, settings)))


def _with(params: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    try:
        chosen = IndicatorSettings.from_json({**params["settings"], **settings})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"indicator: a setting is not of the kind it must be: {error}") from error
    return {**params, "settings": chosen.to_json()}


def ship(bundle: Path) -> None:
    """Take over the indicator of a bundle, and what it was compared with.

    Raises:
        UserError: the bundle is damaged.
    """
    read = read_bundle(bundle)
    indicator = read.content.strategy()
    results = [asdict(result) for result in read.meta.results]
    write_json(SHIPPED, {"params": indicator.params(), "results": results})


def main(arguments: list[str]) -> None:
    """Ship the indicator of the bundle; a user's mistake is one line and exit code 2."""
    with one_line_mistakes("shipped"):
        ship(read_folder(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
