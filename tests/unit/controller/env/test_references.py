"""References: the scale of every game's scores, and how it is measured again."""

from __future__ import annotations

from pathlib import Path

import pytest

from accerl.errors import UserError
from accerl.records import read_json, write_json
from controller.env import references


def test_random_play_of_catch_scores_what_is_known() -> None:
    assert references.random_return("catch") == pytest.approx(-0.6, abs=0.1)


def test_games_without_a_reference_are_named() -> None:
    with pytest.raises(UserError, match=r"did you mean 'catch'.*give `make_instance`"):
        references.load_reference("catsh")


def test_measuring_one_game_keeps_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "FILE", tmp_path / "references.json")
    monkeypatch.setattr(references, "reference_return", lambda game: (0.75, [0.5, 0.75, 1.0]))
    write_json(references.FILE, {"cartpole": {"random_return": 20.0, "reference_return": 400.0}})
    references.main(["catch"])
    table = read_json(references.FILE)
    assert set(table) == {"cartpole", "catch"}
    assert table["catch"]["reference_return"] == 0.75
    assert table["catch"]["by_seed"] == {"50": 0.5, "51": 0.75, "52": 1.0}


def test_a_misspelt_game_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        references.main(["catsh"])
    assert stop.value.code == 2
    assert "did you mean 'catch'" in capsys.readouterr().err
