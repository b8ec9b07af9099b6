"""Meta-training on tier 0: it is refused before it works, or its bundle is there in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from controller.bundle.bundle import verify_bundle
from studies import tier0

SMALL: dict[str, Any] = {"iterations": 2, "instances": 1, "draws": 1, "seed": 0}


def test_a_place_that_cannot_be_written_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier0, "train_on_tier0", lambda *_, **__: pytest.fail("it trained"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write to"):
        tier0.train_tier0(tmp_path / "file" / "bundle", **SMALL)


def test_the_bundle_may_be_the_folder_that_one_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    tier0.train_tier0(Path("."), **SMALL)
    assert verify_bundle(".")["ok"]
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
