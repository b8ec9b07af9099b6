"""Storages of trials: what cannot be opened is told in one line, without passwords."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
from optuna import create_study, get_all_study_names

from accerl.errors import UserError
from studies.storage import open_storage, shown, storage_errors
from tests.fixtures.studies.postgres import PASSWORD, Server

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (f"postgresql://me:{SECRET}@host/db", "postgresql://me:***@host/db"),
        (f"postgresql://me:{SECRET}/@{SECRET}@host/db", "postgresql://me:***@host/db"),
        (f"postgresql://host/db?password={SECRET}", "postgresql://host/db"),
        (f"postgresql:me:{SECRET}@host/db", "***@host/db"),
        ("out/optuna.journal", "out/optuna.journal"),
    ],
)
def test_passwords_are_not_shown(where: str, told: str) -> None:
    assert shown(where) == told


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (f"postgresql+psycopg://me:{SECRET}@127.0.0.1:1/db", "does not answer .*refused.*running"),
        (f"postgresql+psycopg://me:{SECRET}@host:port/db", "neither a URL such as postgresql"),
        (f"postgresql+psycopg://me:p@{SECRET}@host/db", "such as %40 for @"),
        (f"postgres://me:{SECRET}@host/db", "no driver for 'postgres' is installed"),
        (f"oracle://me:{SECRET}@host/db", "pip install 'psycopg.binary.'"),
        ("://", "neither a URL"),
        ("jobs.db", "nor a file named .*journal"),
        ("no/such/folder/optuna.journal", "in a folder that exists"),
    ],
)
def test_what_cannot_be_opened_is_told_in_one_line(where: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        open_storage(where)
    assert "\n" not in str(error.value)
    assert SECRET not in str(error.value)


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as if it were not installed
    with pytest.raises(UserError, match=r"pip install 'psycopg\[binary\]'"):
        open_storage("postgresql://me@127.0.0.1:1/db")


def test_half_a_line_that_a_killed_writer_left_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "optuna.journal"
    create_study(study_name="first", storage=open_storage(str(path)))
    whole = path.read_bytes()
    reader = open_storage(str(path))
    path.write_bytes(whole + whole[:20])
    assert get_all_study_names(reader) == ["first"]
    create_study(study_name="second", storage=open_storage(str(path)))
    assert get_all_study_names(reader) == ["first", "second"]
    assert all(json.loads(line) for line in path.read_text().splitlines())
    path.write_bytes(whole[:20])  # not even one line was whole
    create_study(study_name="third", storage=open_storage(str(path)))
    assert get_all_study_names(open_storage(str(path))) == ["third"]


def test_a_damaged_journal_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "optuna.journal"
    path.write_text("no JSON\n" * 3)
    with pytest.raises(UserError, match="is damaged"):
        open_storage(str(path))


@pytest.mark.postgres
def test_the_server_s_refusals_are_told_in_one_line(postgres: Server) -> None:
    with pytest.raises(UserError, match="password authentication failed") as error:
        open_storage(postgres.url("postgres", password=SECRET))
    assert SECRET not in str(error.value)
    with pytest.raises(UserError, match=r'database "nowhere" does not exist') as error:
        open_storage(postgres.url("nowhere"))
    assert PASSWORD not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.postgres
def test_several_may_be_first_to_open_a_database(postgres: Server) -> None:
    url = postgres.new_database()
    errors: list[Exception] = []

    def open_it() -> None:
        try:
            open_storage(url)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.postgres
def test_a_server_that_goes_away_is_told_in_one_line(postgres: Server) -> None:
    url = postgres.new_database()
    storage = open_storage(url)
    database = url.rpartition("/")[2]
    import psycopg

    with psycopg.connect(
        postgres.url("postgres").replace("+psycopg", ""), autocommit=True
    ) as server:
        server.execute(f"DROP DATABASE {database} WITH (FORCE)".encode())
    with (
        pytest.raises(UserError, match=r"stopped to answer .*does not exist.*to go on") as error,
        storage_errors(url),
    ):
        storage.get_all_studies()
    assert "\n" not in str(error.value)
    assert PASSWORD not in str(error.value)
