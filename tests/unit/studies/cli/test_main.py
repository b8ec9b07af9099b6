"""The list of commands: complete, and cheap to print."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from accerl import __version__
from accerl.errors import GameError
from studies.cli import profile
from studies.cli.command import Command
from studies.cli.main import COMMANDS
from tests.fixtures.command_line import accerl


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_shows_the_first_line_of_every_docstring(name: str) -> None:
    path, summary = COMMANDS[name]
    module, kind = path.rsplit(".", 1)
    command = getattr(importlib.import_module(f"studies.cli.{module}"), kind)
    assert issubclass(command, Command)
    assert (command.__doc__ or "").splitlines()[0] == summary


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from studies.cli.main import run; run(['--help']); "
        "heavy = {'torch', 'numpy', 'optuna', 'ray', 'tyro'}; print([*heavy & {*sys.modules}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert accerl(capsys, "--version").out == f"{__version__}\n"


def test_numbers_of_numpy_are_printed_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(profile.List, "execute", lambda _: {"share": np.float32(0.5)})
    assert accerl(capsys, "profile", "list", "--json").json["share"] == 0.5


def test_output_that_nobody_reads_ends_a_command_quietly() -> None:
    command = [sys.executable, "-m", "studies.cli", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()  # long before Python has started
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_full_disk_is_one_line_that_says_what_to_do() -> None:
    command = [sys.executable, "-m", "studies.cli", "--help"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("accerl: [Errno 28] No space left on device; free some space")


def test_what_code_of_ones_own_prints_is_no_part_of_the_json() -> None:
    code = (
        "import os, sys\n"
        "from studies.cli import profile\n"
        "from studies.cli.main import main\n"
        "def execute(_):\n"
        "    print('mine')\n"
        "    os.system('echo its')\n"
        "    return {'share': 1}\n"
        "profile.List.execute = execute\n"
        "main(['profile', 'list', '--json'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["share"] == 1
    assert sorted(done.stderr.splitlines()) == ["its", "mine"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (SystemExit(3), "code of your own has called sys.exit(3); have it raise an error"),
        (MemoryError("2 TB"), "there is too little memory (2 TB); ask for less"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"),
            "there is too little memory (DefaultCPUAllocator: can't allocate memory: you tried 9 "
            "bytes); ask for less",
        ),
        (torch.OutOfMemoryError("CUDA"), "there is too little memory (CUDA); ask for less"),
    ],
)
def test_what_would_end_without_a_word_is_one_line(
    error: BaseException,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(profile.List, "execute", fail)
    done = accerl(capsys, "profile", "list")
    assert (done.code, done.err) == (2, f"accerl: {line}\n")


@pytest.mark.parametrize(
    "ends",
    [
        "2>&1 | true",
        *(pytest.param(s, marks=pytest.mark.slow) for s in (">&-", "> >(true)", "2>&-")),
    ],
)
def test_streams_that_end_early_or_are_closed_end_nothing_with_a_traceback(ends: str) -> None:
    command = f"{sys.executable} -m studies.cli study list {ends}; echo ${{PIPESTATUS[0]}} >&9"
    read, write = os.pipe()
    done = subprocess.run(
        ["bash", "-c", f"exec 9>&{write}; {command}"], capture_output=True, pass_fds=[write]
    )
    os.close(write)
    with os.fdopen(read) as status:
        code = int(status.read())
    assert code == (141 if "true" in ends else 0)
    assert b"Traceback" not in done.stdout + done.stderr


def test_letters_that_a_stream_does_not_have_are_spelt_out() -> None:
    code = (
        "from studies.cli import profile\n"
        "from studies.cli.main import main\n"
        "from studies.progress import say\n"
        "profile.List.execute = lambda _: say('J \u2248 3')\n"
        "main(['profile', 'list'])"
    )
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=ascii_only)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"J \\u2248 3\n", b"")


@pytest.mark.parametrize(("saved", "shown"), [(False, "Traceback: ...\n"), (True, "")])
def test_a_traceback_of_a_game_is_shown_where_no_file_holds_it(
    saved: bool,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(arguments: list[str]) -> None:
        raise GameError("environment 3 raised", "Traceback: ...\n", saved=saved)

    monkeypatch.setattr("studies.cli.main._dispatch", fail)
    done = accerl(capsys, "train", "mine:My-v0")
    assert (done.code, done.err) == (2, f"{shown}accerl: environment 3 raised\n")
