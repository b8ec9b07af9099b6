"""Results that are saved as they come: an interrupted study goes on from them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import json_hash, make_out_dir, write_json

SHOWN_CHARACTERS = 1000
"""values of a key whose JSON is longer are written as their hash: a key is there to be read"""


class ResultCache:
    """Results in plain JSON, by a key in plain JSON that states all they depend on.

    Every result is a file of its own, so any number of processes may add some, on any machine that
    sees the folder.

    Args:
        folder: of the files, made with the first result; None: results stay in memory.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._results: dict[str, Any] = {}

    def __contains__(self, key: Any) -> bool:
        name = json_hash(key)
        if name not in self._results and self._folder is not None:
            # A file that is damaged is as good as none: its result is made again.
            with contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError):
                self._results[name] = json.loads(self._path(name).read_text())["result"]
        return name in self._results

    def __getitem__(self, key: Any) -> Any:
        if key not in self:
            raise KeyError(key)
        return self._results[json_hash(key)]

    def save(self, key: Any, result: Any) -> None:
        """Save a result.

        Raises:
            UserError: the disk is full, or cannot be written.
        """
        name = json_hash(key)
        if self._folder is not None:
            try:
                if not self._folder.is_dir():
                    make_out_dir(self._folder)
                write_json(self._path(name), {"key": _shown(key), "result": result}, indent=None)
            except OSError as error:
                raise UserError(
                    f"cannot save a result in {self._folder}: {error.strerror or error}; when "
                    "there is room, start the same command again to go on"
                ) from error
        # As whoever reads the file will see it: a study that goes on must not differ in anything.
        self._results[name] = json.loads(json.dumps(result))

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what is saved under `key`, or make it and save it."""
        if key not in self:
            self.save(key, make())
        return self[key]

    def _path(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{name}.json"


def _shown(key: Any) -> Any:
    if not isinstance(key, Mapping):
        return key
    long = {name for name, value in key.items() if len(json.dumps(value)) > SHOWN_CHARACTERS}
    return {n: {"sha256": json_hash(v)} if n in long else v for n, v in key.items()}
