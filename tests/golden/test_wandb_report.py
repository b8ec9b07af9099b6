"""The W&B report of the synthetic contest is the one that was last looked at and kept.

`wandb_report.json` beside this file is its specification, a block a line. After a change that is
meant, write it anew, read what git says has changed, and commit that:

    ACCERL_RENEW_GOLDEN=1 python -m pytest tests/golden/test_wandb_report.py
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from analysis.render.wandb_document import write_report_spec
from analysis.report.study import StudyReport
from tests.fixtures.studies.synthetic_contest import write_contest_study

GOLDEN = Path(__file__).with_name("wandb_report.json")
RENEW = "ACCERL_RENEW_GOLDEN"
MOST_BYTES = 200_000
# W&B draws its ids at random, one in ten thousand of two characters or fewer ("0", "-5"); a chart's
# hash is of numbers whose last bits depend on the processor.
ID = re.compile(r'"(__id__|id|ref|viewId)": "-?[0-9a-z]{1,13}"')
HASH = re.compile(r'("panelDefId": "entity/accerl-[a-z0-9-]+)-[0-9a-f]{8}"')


def lines_of(spec: dict[str, Any]) -> list[str]:
    """Return the specification without what is random: first all but the blocks, then these."""
    parts = [{key: value for key, value in spec.items() if key != "blocks"}, *spec["blocks"]]
    texts = (json.dumps(part, sort_keys=True) for part in parts)
    return [HASH.sub(r'\1-HASH"', ID.sub(r'"\1": "ID"', text)) for text in texts]


def test_the_report_is_the_one_that_was_kept(tmp_path: Path) -> None:
    folder = write_contest_study(tmp_path, seeds=(100, 101))
    found = lines_of(json.loads(write_report_spec(StudyReport.of(folder), folder).read_text()))
    if os.environ.get(RENEW):
        GOLDEN.write_text("[\n" + ",\n".join(found) + "\n]\n")
    assert GOLDEN.stat().st_size < MOST_BYTES
    kept = [json.dumps(part, sort_keys=True) for part in json.loads(GOLDEN.read_text())]
    for number, (mine, theirs) in enumerate(zip(found, kept, strict=False)):
        assert mine == theirs, f"block {number} has changed; if it should have: see {__file__}"
    assert len(found) == len(kept), f"there are more or fewer blocks; see {__file__}"
