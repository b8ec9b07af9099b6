"""Results that are kept as they come, so that whoever is interrupted can go on from them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accerl.records import json_hash


class ResultCache:
    """Results in plain JSON, by a key in plain JSON that says all they depend on.

    Args:
        path: of a file of JSON lines; None: they are kept in memory alone.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._results: dict[str, Any] = {}
        lines = path.read_text().splitlines() if path is not None and path.is_file() else []
        for line in lines:
            # A line cut off by a kill is something that is simply done again.
            with contextlib.suppress(json.JSONDecodeError):
                entry = json.loads(line)
                self._results[entry["job"]] = entry["result"]
        if lines and path is not None:
            kept = [{"job": key, "result": result} for key, result in self._results.items()]
            path.write_text("".join(json.dumps(entry) + "\n" for entry in kept))

    def __contains__(self, key: Any) -> bool:
        return json_hash(key) in self._results

    def __getitem__(self, key: Any) -> Any:
        return self._results[json_hash(key)]

    def keep(self, key: Any, result: Any) -> None:
        """Keep a result."""
        self._results[json_hash(key)] = result
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"job": json_hash(key), "result": result}) + "\n")

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what is kept under `key`, or make it and keep it."""
        if key not in self:
            self.keep(key, make())
        return self[key]
