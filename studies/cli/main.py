"""The `accerl` command: finds the command that is named, and turns mistakes into one line."""

from __future__ import annotations

import errno
import importlib
import json
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import version
from io import TextIOWrapper

from accerl.errors import GameError, UserError, did_you_mean, first_line

# Modules are named, not imported: `accerl --help` needs none of them, nor torch.
COMMANDS = {
    "train": ("train.Train", "Train one agent."),
    "eval": ("train.Eval", "Play episodes with a checkpoint."),
    "compare": (
        "compare.Compare",
        "Train under several strategies with the same seeds, and compare what they take.",
    ),
    "bench infer": ("bench.times.Infer", "Time inference with every compression, and its KL."),
    "bench publish": ("bench.times.Publish", "Time publications: compress, export, load."),
    "bench learner": ("bench.times.Learner", "Time learner updates in float32 and bfloat16."),
    "bench advice": (
        "bench.advice.Advice",
        "Let specs act for real, beside what `profile advise` predicts.",
    ),
    "bench pipeline": ("bench.times.Pipeline", "Compare the speed of whole pipelines."),
    "bench inner": ("bench.inner.Inner", "Show where the core-seconds of an inner run go."),
    "bench messages": ("bench.times.Messages", "Measure what Ray's messages take."),
    "bench clock": ("bench.times.Clock", "Compare the virtual clock with the real one."),
    "bench events": (
        "bench.times.Events",
        "Compare the clocks while a machine's conditions change.",
    ),
    "bench students": (
        "bench.times.Students",
        "Compare how close small networks come to a trained policy, and how fast.",
    ),
    "profile measure": ("profile.Measure", "Measure this machine's latency profile."),
    "profile advise": ("profile.Advise", "Predict whether compressing pays on a machine."),
    "profile sample": (
        "sample.Sample",
        "Draw machines that users have, or predict fleets of actors.",
    ),
    "profile list": ("profile.List", "List the latency profiles that have a name."),
    "profile show": ("profile.Show", "Show a latency profile as a table."),
    "profile diff": ("profile.Diff", "Compare two latency profiles."),
    "study run": ("study.Run", "Run a study, or go on with an interrupted one."),
    "study page": ("study.Page", "Write the page of the papers' claims from what ran at size."),
    "study pack": (
        "study.Pack",
        "Write a study's finished runs into one file, to go on from it elsewhere.",
    ),
    "study merge": (
        "study.Merge",
        "Add finished runs of files and of other folders to a study's folder.",
    ),
    "study list": ("study.List", "List the studies, or show how one stands."),
    "controller train": (
        "controller.Train",
        "Meta-train the Advanced Indicator on tier 0, simulated runs on drawn machines.",
    ),
    "controller eval": ("controller.Eval", "Compare the strategies of a finished contest."),
    "schedule export": ("schedule.Export", "Copy the bundle that a study learned."),
    "schedule show": ("schedule.Show", "Describe a schedule bundle."),
    "schedule verify": ("schedule.Verify", "Check that a schedule bundle is intact."),
    "schedule replay": ("schedule.Replay", "Train under a bundle's open-loop schedule."),
    "report": ("report.Report", "Write the HTML report of a study or of runs."),
}
"""dataclass in this package, and the first line of its docstring"""


def main(arguments: list[str] | None = None) -> None:
    """Entry point: exit code 0, 2 with one line on a user's mistake, 130 on Ctrl-C.

    It is 141 where what reads the output has gone, as `accerl --help | head` may do.
    """
    _open_streams()
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    # A terminated command tidies up like one that was interrupted, and so does one whose terminal
    # was closed, if it was not to go on then (nohup).
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        terminals = [number for number in (1, 2) if os.isatty(number)]
        signal.signal(signal.SIGHUP, lambda *_: _hang_up(terminals))
    if "" not in sys.path:
        sys.path.insert(0, "")  # a user's own students lie in the folder that they work in
    try:
        _dispatch(arguments)
        sys.stdout.flush()
    except UserError as error:
        if isinstance(error, GameError) and not error.saved:
            print(error.details, end="", file=sys.stderr)  # there was no folder to write it to
        print(f"accerl: {error}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not _lacks_memory(error):
            raise
        what = f" ({first_line(error)})" if str(error) else ""
        print(f"accerl: there is too little memory{what}; ask for less", file=sys.stderr)
        return 2
    except (FloatingPointError, OSError) as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            return 128 + signal.SIGPIPE
        # A diverged learner, a full disk, a vanished folder: nothing a traceback would explain.
        print(f"accerl: {error}{_hint(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        # What keeps something that a later call goes on with says so; other commands write last.
        left = str(interrupt) or "it was not done yet: start it again"
        print(f"accerl: interrupted; {left}", file=sys.stderr)
        return 130
    return 0


def _lacks_memory(error: Exception) -> bool:
    """Whether memory ran out: Python's own, torch's on a processor, or a GPU's."""
    said = str(error)
    by_torch = "can't allocate memory" in said or type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, MemoryError) or by_torch


def _hint(error: Exception) -> str:
    """Return what to do about a full disk, where nobody who knew the file has said it."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "; free some space or choose another --out, and start it again" if full else ""


def _dispatch(arguments: list[str]) -> None:
    """Run the command that the first one or two words name; print its result for --json."""
    group, *others = arguments or ["--help"]
    if group in ("-h", "--help"):
        return _help("")
    if group == "--version":
        return print(version("accerl-control"))
    for words in (2, 1):
        name = " ".join(arguments[:words])
        if name in COMMANDS:
            return _call(name, arguments[words:])
    members = [name.split()[1] for name in COMMANDS if name.startswith(f"{group} ")]
    if not members:
        groups = sorted({name.split()[0] for name in COMMANDS})
        raise UserError(f"command {group!r} does not exist; {did_you_mean(group, groups)}")
    if not others or others[0] in ("-h", "--help"):
        return _help(group)
    raise UserError(f"command {group!r} has no {others[0]!r}; {did_you_mean(others[0], members)}")


def _call(name: str, arguments: list[str]) -> None:
    """Read a command's options and run it."""
    from accerl.records import plain
    from studies.cli.command import Command, check_writable, made_here
    from studies.cli.options import read_options

    module, _, kind = COMMANDS[name][0].rpartition(".")
    command_type: type[Command] = getattr(importlib.import_module(f"studies.cli.{module}"), kind)
    command = read_options(command_type, name, arguments)
    out = getattr(command, "out", None)
    if out is not None and command.writes:
        check_writable(out)
    with _only_json() if command.json else _for_people():
        try:
            result = command.execute()
        except SystemExit as error:  # a reader that has gone is a BrokenPipeError, see `progress`
            raise UserError(
                f"code of your own has called sys.exit({error.code!r}); have it raise an error"
            ) from error
    if command.json:
        print(json.dumps(plain(made_here(result))))


@contextmanager
def _for_people() -> Iterator[None]:
    """Have what is printed for people go to standard output, where pipes and files take it from."""
    from studies.progress import console

    console.use(stderr=False)
    try:
        yield
    finally:
        console.use(stderr=True)


@contextmanager
def _only_json() -> Iterator[None]:
    """Have what a user's own code prints, here or in other processes, go to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _help(group: str) -> None:
    """Print the commands, one line each."""
    print(f"usage: accerl {group or 'COMMAND'} ... (each command explains itself with --help)\n")
    for name, (_, summary) in COMMANDS.items():
        if name.startswith(group):
            print(f"  accerl {name:18} {summary}")


def _nobody_reads() -> bool:
    """Return whether what reads the output has gone; if so, what is left of it is thrown away."""
    output = select.poll()
    for stream in (sys.stdout, sys.stderr):
        output.register(stream, select.POLLERR)
    gone = [number for number, _ in output.poll(0)]
    for number in gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    return bool(gone)


def _open_streams() -> None:
    """Open what the shell has closed: nobody reads there, and what is printed is thrown away.

    Standard output spells out letters that it does not have, as standard error does by itself.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            setattr(sys, name, os.fdopen(number, "w"))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _hang_up(terminals: Sequence[int]) -> None:
    """Interrupt; what is still to be printed on a closed terminal is thrown away."""
    for number in terminals:
        if not os.isatty(number):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    raise KeyboardInterrupt
