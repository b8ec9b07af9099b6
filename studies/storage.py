"""Where Optuna keeps the trials of a study: a journal in its folder, or a database."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, BinaryIO

import optuna
import sqlalchemy
import sqlalchemy.exc
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, get_storage
from optuna.storages.journal import JournalFileBackend

from accerl.errors import UserError, one_line

JOURNAL = "optuna.journal"
"""the default storage, in the study's folder"""
EXAMPLE = "postgresql+psycopg://user:password@host/database"
CONNECT_SECONDS = 10
SYNC_SECONDS = 1.0
"""between two times that a journal is forced to the disk, which may take 15 ms"""
_ATTEMPTS = 5
"""at making the tables of an empty database: others may be making them too"""


def open_storage(where: str) -> BaseStorage:
    """Open a storage.

    Args:
        where: path of a ``.journal`` file, or a URL as SQLAlchemy and Optuna take it.

    Raises:
        UserError: it is neither, cannot be reached, or its driver is not installed. Passwords are
            never repeated.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if "://" in where:
        return get_storage(_open_database(where))
    path = Path(where)
    if path.suffix != ".journal" or not path.parent.is_dir():
        raise _malformed(where)
    try:
        return JournalStorage(JournalFile(path))
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); was it edited?") from error


def shown(where: str) -> str:
    """Return `where` for people: without its password, and without options that may hold one."""
    head, at, tail = where.rpartition("@")
    scheme, slashes, user = head.partition("://")
    told = f"{scheme}://{user.partition(':')[0]}:***@{tail}" if slashes else f"***@{tail}"
    return (told if at else where).partition("?")[0]


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Say in one line that a database has stopped to answer.

    Raises:
        UserError: it has.
    """
    try:
        yield
    except StorageInternalError as error:
        raise UserError(
            f"the storage {shown(where)} has stopped to answer ({_reason(error)}); what was done "
            "is kept: when it is back, start the same command again to go on"
        ) from error


class JournalFile(JournalFileBackend):
    """A journal whose writers may be killed at any moment.

    Optuna's own lock is a file, which a killed writer leaves behind, and half a line of its makes
    the journal unreadable once more is added. This lock is the kernel's and goes with its process;
    whoever holds it first cuts off half a line.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path
        self._synced = -SYNC_SECONDS

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add lines; they have left this process when this returns."""
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        with self._path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.truncate(_end_of_last_line(file))
            file.seek(0, os.SEEK_END)
            file.write(lines.encode())
            file.flush()
            # A kill loses nothing; what a power cut loses is done again.
            if monotonic() - self._synced >= SYNC_SECONDS:
                os.fsync(file.fileno())
                self._synced = monotonic()


def _end_of_last_line(file: BinaryIO) -> int:
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return 0
    file.seek(end - 1)
    if file.read(1) == b"\n":
        return end
    file.seek(0)
    return file.read().rfind(b"\n") + 1


def _open_database(where: str) -> RDBStorage:
    try:
        url = sqlalchemy.make_url(where)
    except (sqlalchemy.exc.ArgumentError, ValueError) as error:
        raise _malformed(where) from error
    if "@" in (url.host or ""):
        raise UserError(
            f"--storage {shown(where)}: write special characters of a password as URLs do, such "
            "as %40 for @"
        )
    options: dict[str, Any] = {"pool_pre_ping": True}  # a connection that was cut is made anew
    if url.get_backend_name() == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
        options["connect_args"] = {"connect_timeout": CONNECT_SECONDS}
    for attempt in range(_ATTEMPTS):
        try:
            return RDBStorage(url.render_as_string(hide_password=False), engine_kwargs=options)
        except (sqlalchemy.exc.NoSuchModuleError, ImportError) as error:
            raise UserError(
                f"--storage {shown(where)}: no driver for {url.drivername!r} is installed; for "
                f"PostgreSQL: pip install 'psycopg[binary]', and write {EXAMPLE}"
            ) from error
        except (sqlalchemy.exc.IntegrityError, sqlalchemy.exc.ProgrammingError) as error:
            # Another process was making the same tables.
            if attempt == _ATTEMPTS - 1:
                raise _no_answer(where, error) from error
            sleep(0.2 * (attempt + 1))
        except RuntimeError as error:  # its tables are of another version, or another program's
            raise UserError(
                f"--storage {shown(where)}: Optuna cannot use this database "
                f"({one_line(error)}); give an empty one"
            ) from error
        except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError) as error:
            raise _no_answer(where, error) from error
    raise AssertionError("the last attempt returns or raises")


def _malformed(where: str) -> UserError:
    return UserError(
        f"--storage {shown(where)!r} is neither a URL such as {EXAMPLE} nor a file named *.journal "
        "in a folder that exists"
    )


def _no_answer(where: str, error: Exception) -> UserError:
    return UserError(
        f"the storage {shown(where)} does not answer ({_reason(error)}); is the server running, "
        "and does it know this user and database?"
    )


def _reason(error: BaseException) -> str:
    """Return what the driver says, in one line; SQLAlchemy's own text adds statements to it."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return (str(getattr(error, "orig", None) or error).strip().splitlines() or ["no reason"])[0]
