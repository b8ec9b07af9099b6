"""A user's own code by its import path: what of it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from accerl.own_code import source_hash


def test_sources_of_packages_are_hashed_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("from own_package.inner import Mine\n")
    (package / "inner.py").write_text("class Mine: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = source_hash("own_package:Mine")
    assert before == source_hash("own_package.inner:Mine") != ""
    (package / "inner.py").write_text("class Mine: pass\n")
    assert source_hash("own_package:Mine") != before
    assert source_hash("no_such_package:Mine") == ""


@pytest.mark.parametrize("imports", ["from own_helpers import limit", "import own_space.helpers"])
def test_what_a_module_imports_of_a_user_s_own_counts_too(
    imports: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = "import json, own_table\nlimit = own_table.LIMIT\n"
    (tmp_path / "own_rule.py").write_text(f"import numpy\n{imports}\n")
    (tmp_path / "own_helpers.py").write_text(helper)
    (tmp_path / "own_table.py").write_text("LIMIT = 1.0\n")
    (tmp_path / "own_space").mkdir()  # a namespace package
    (tmp_path / "own_space" / "helpers.py").write_text("from .more import limit\n")
    (tmp_path / "own_space" / "more.py").write_text(f"import own_rule\n{helper}")
    monkeypatch.syspath_prepend(tmp_path)
    before = source_hash("own_rule:Mine")
    assert source_hash("own_rule:Mine") == before
    (tmp_path / "own_table.py").write_text("LIMIT = 2.0\n")
    assert source_hash("own_rule:Mine") != before
