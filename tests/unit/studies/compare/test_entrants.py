"""What a comparison calls its entrants where a folder has the name of a strategy."""

from __future__ import annotations

from pathlib import Path

import pytest

from accerl.runtime.latency.profiles import load_profile
from accerl.settings import configure
from studies.compare.entrants import read_entrants
from tests.fixtures.controllers.made_bundles import make_indicator_bundle


def test_a_bundle_in_a_folder_of_a_strategys_name_is_another_entrant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_indicator_bundle(Path("indicator"))
    texts = ["indicator", 'indicator {"cap_nats": 0.2}', "./indicator"]
    found = read_entrants(texts, configure("catch", {}), load_profile("paper-1080ti"))
    assert [each.label for each in found] == texts
    assert len({each.folder for each in found}) == 3
    digests = ["digest" in each.identity["strategy_params"] for each in found]
    assert digests == [False, False, True]
