"""What a study's folder has decided for all machines that go on with it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from accerl.errors import UserError
from accerl.precision import AUTO, BF16, FP32, choose_precision
from accerl.records import write_json
from analysis.records.read import read_record
from studies.progress import say

PRECISION = "precision.json"
"""in a study's folder: what "auto" means there, so that its runs count on every machine"""
_IN_WORDS = {BF16: "bfloat16", FP32: "float32"}


def decided_precision(folder: Path, results: str) -> str:
    """Return what "auto" means in a study's folder, as the machine decided that began it.

    A folder that does not say so yet, such as one that runs were merged into, is as its runs are:
    in bfloat16 if one of them is.

    Args:
        folder: of the study.
        results: in it, the folder of finished jobs.

    Raises:
        UserError: the file that says so is damaged.
    """
    own, path = choose_precision(AUTO), folder / PRECISION
    if path.is_file():
        found = read_record(path).get(AUTO)
        if not isinstance(found, str) or found not in _IN_WORDS:
            raise UserError(f"{path} does not say whether auto means {BF16} or {FP32}; delete it")
    else:
        found = _learned_in(folder / results) or own
        write_json(path, {AUTO: found})
    if found != own:
        cost = "takes longer for" if found == BF16 else "would not choose"
        say(
            f"  runs in {folder} learn in {_IN_WORDS[found]}, which this machine {cost}; those "
            "that are there are taken as they are"
        )
    return found


def _learned_in(results: Path) -> str | None:
    """Return the precision of finished runs; None: there are none that learned."""
    found = None
    for path in results.glob("*.json"):
        with suppress(ValueError, KeyError, TypeError):  # a damaged file is as good as none
            precisions = json.loads(path.read_text())["key"]["precision"]
            if BF16 in precisions:
                return BF16
            found = FP32
    return found
