"""The `accerl` command line."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import tyro

from accerl.errors import UserError, did_you_mean
from studies.cli import bench_options, options, profile_options

COMMANDS: dict[str, Any] = {
    "train": options.train,
    "eval": options.evaluate,
    "bench infer": bench_options.bench_infer,
    "bench publish": bench_options.bench_publish,
    "bench learner": bench_options.bench_learner,
    "bench pipeline": bench_options.bench_pipeline,
    "bench clock": bench_options.bench_clock,
    "profile measure": profile_options.profile_measure,
    "profile advise": profile_options.profile_advise,
    "profile list": profile_options.profile_list,
    "profile show": profile_options.profile_show,
    "profile diff": profile_options.profile_diff,
    "study run": options.study_run,
    "study list": options.study_list,
    "study worker": options.study_worker,
    "controller train": options.controller_train,
    "controller eval": options.controller_eval,
    "schedule export": options.schedule_export,
    "schedule show": options.schedule_show,
    "schedule verify": options.schedule_verify,
    "schedule replay": options.schedule_replay,
    "report": options.report,
}


def main(arguments: list[str] | None = None) -> None:
    """Entry point: exit code 0, 2 with one line on a user's mistake, 130 on Ctrl-C."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    # A terminated command tidies up like one that was interrupted.
    signal.signal(signal.SIGTERM, _interrupt)
    if "" not in sys.path:
        sys.path.insert(0, "")  # a user's own students lie in the folder that they work in
    try:
        result = _dispatch(arguments)
    except UserError as error:
        print(f"accerl: {error}", file=sys.stderr)
        return 2
    except (FloatingPointError, OSError) as error:
        # A diverged learner, a full disk, a vanished folder: nothing a traceback would explain.
        print(f"accerl: {error}; what was done before is kept", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("accerl: interrupted; what was done is kept", file=sys.stderr)
        return 130
    if "--json" in arguments:
        print(json.dumps(result))
    return 0


def _dispatch(arguments: list[str]) -> Any:
    """Find the command that the first one or two words name, and call it."""
    if not arguments or arguments[0] in ("-h", "--help"):
        return _help("")
    for words in (2, 1):
        name = " ".join(arguments[:words])
        if name in COMMANDS:
            command = COMMANDS[name]
            _check_out(arguments)
            positional, named = _parse(command, name, arguments[words:])
            return command(*positional, **named)
    group = arguments[0]
    members = [name for name in COMMANDS if name.startswith(f"{group} ")]
    if not members:
        tops = sorted({name.split()[0] for name in COMMANDS})
        raise UserError(f"command {group!r} does not exist; {did_you_mean(group, tops)}")
    if len(arguments) == 1 or arguments[1] in ("-h", "--help"):
        return _help(group)
    hint = did_you_mean(arguments[1], [name.split()[1] for name in members])
    raise UserError(f"command {group!r} has no {arguments[1]!r}; {hint}")


def _parse(command: Any, name: str, arguments: list[str]) -> tuple[Any, Any]:
    """Read a command's options; what tyro says of a mistake in a box becomes one line."""

    @functools.wraps(command)
    def options_of(*positional: Any, **named: Any) -> tuple[Any, Any]:
        return positional, named

    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(
                options_of,
                prog=f"accerl {name}",
                args=arguments,
                description=(command.__doc__ or "").split("\n\n")[0],
            )
    except SystemExit as stop:
        if not stop.code:
            raise  # --help has been printed
        lines = [line.strip("│ ") for line in box.getvalue().splitlines()]
        said = itertools.takewhile(lambda line: line and line[0] not in "─╰", lines[1:])
        raise UserError(f"{' '.join(said)} (see `accerl {name} --help`)") from stop


def _check_out(arguments: list[str]) -> None:
    """Refuse an --out that cannot be written before a command has worked for minutes."""
    given = [value for name, value in itertools.pairwise(arguments) if name == "--out"]
    given += [item.removeprefix("--out=") for item in arguments if item.startswith("--out=")]
    for value in given:
        path = Path(value).absolute()
        existing = next(folder for folder in (path, *path.parents) if folder.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            raise UserError(
                f"cannot write to {value}: {existing} is not a folder that can be written; "
                "give --out a writable folder"
            )


def _help(group: str) -> None:
    """Print the commands, one line each."""
    print(f"usage: accerl {group or 'COMMAND'} ... (each command explains itself with --help)\n")
    for name, command in COMMANDS.items():
        if name.startswith(group):
            print(f"  accerl {name:18} {(command.__doc__ or '').splitlines()[0]}")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
