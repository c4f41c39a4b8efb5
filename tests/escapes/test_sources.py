"""Files that are no evaluators, and sources that are bombs: the real command, its time and its memory.

Sources are parsed behind the wall and read within bounds, so whatever stands in one, the host answers with a clear
message, in bounded time and memory, and with the right exit code.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import evalcell
from evalcell.errors import EvaluatorError
from evalcell.evaluator import Evaluator, understand
from evalcell_sandboxes import (
    Confinement,
    Crashed,
    Exceeded,
    Invalid,
    Limits,
    Program,
    Raised,
    sandbox,
)

EVALUATE = "def evaluate(output): return 1\n"
MOST_SECONDS = 30.0
HOST_BYTES = 150 * 1024**2
GUEST_BYTES = 96 * 1024**2
LIMITS = ("--limit", f"memory_bytes={GUEST_BYTES}", "--limit", "load_seconds=4")


def nested(opening: str, closing: str, times: int) -> str:
    return f"x = {opening * times}1{closing * times}\n{EVALUATE}"


def block(text: str) -> str:
    return "# /// script\n" + "".join(f"# {line}\n" for line in text.splitlines()) + f"# ///\n{EVALUATE}"


BOMBS = {
    "parentheses": (nested("(", ")", 100_000), "nested too deeply"),
    "brackets": (nested("[", "]", 100_000), "nested too deeply"),
    "calls": (nested("f(", ")", 100_000), "nested too deeply"),
    "lambdas": (nested("lambda: ", "", 50_000), "nested too deeply"),
    "minus": (nested("-", "", 200_000), "nested too deeply"),
    "f-strings": (nested("f'{", "}'", 140), "nested too deeply"),
    "comprehensions": (nested("[", " for _ in y]", 80), "died"),
    "sums": (nested("1+", "", 150_000), "too large|too deep"),
    "branches": ("if 1: pass\n" + "elif 1: pass\n" * 60_000 + EVALUATE, "nested too deeply"),
    "indentation": ("".join(f"{' ' * n}if 1:\n" for n in range(150)), "too many levels"),
    "unclosed": ("(" * 50_000, "nested too deeply"),
    "parameters": (f"def evaluate({','.join(f'p{n}' for n in range(60_000))}): return 1\n", "declares more"),
    "imports": ("import os\n" * 60_000 + EVALUATE, "too large to parse"),
    "block-nesting": (block(f"x = {'[' * 50_000}"), "not valid TOML"),
    "block-dotted-key": (block(f"{'.'.join('a' * 20_000)} = 1"), "died"),
    "block-tables": (block("\n".join(f"[a{n}]" for n in range(50_000))), "unknown key"),
    "block-integer": (block(f"[tool.evalcell]\nset = {{a = {'9' * 4_000}}}"), "64 bits"),
    "nul": (f"x = 1\0\n{EVALUATE}", "null bytes"),
    "encoding-cookie": (f"# coding: utf-7\n+AAo-import os\n{EVALUATE}", "invalid syntax"),
}


# Says what its child used: a process that forks from a large one is reckoned as large as that by the kernel.
_MEASURE = """
import pathlib, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
pathlib.Path(sys.argv[1]).write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Runs the real command, in bounded time and memory; gives its exit code and what it said."""

    def command(*arguments: object, most_bytes: int) -> tuple[int, str]:
        peak = tmp_path / "peak"
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE, str(peak), sys.executable, "-m", "evalcell", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=MOST_SECONDS,
            check=False,
        )
        text = done.stdout + done.stderr
        assert int(peak.read_text()) * (1 if sys.platform == "darwin" else 1024) < most_bytes, text
        assert str(Path(evalcell.__file__).parent) not in text, "a traceback of our own"
        assert len(text) < 10_000
        return done.returncode, text

    return command


def both(path: Path, rows: Callable[..., Path]) -> list[tuple[object, ...]]:
    return [("check", path), ("run", path, "--data", rows([{"output": 1}]))]


@pytest.mark.parametrize("name", BOMBS)
def test_a_parser_bomb_is_defused_behind_the_wall(name):
    text, message = BOMBS[name]
    started = time.monotonic()
    with pytest.raises(EvaluatorError, match=message):
        understand(
            Evaluator.from_source(text),
            sandbox("wasm").describe(text, Limits(load_seconds=10.0, memory_bytes=GUEST_BYTES)),
        )
    assert time.monotonic() - started < 12


@pytest.mark.parametrize("name", ["parentheses", "comprehensions", "block-nesting"])
def test_a_parser_bomb_is_answered_by_the_command_within_bounds(command, write, rows, name):
    source, message = BOMBS[name]
    for arguments in both(write("bomb.py", source), rows):
        code, said = command(*arguments, *LIMITS, most_bytes=HOST_BYTES + GUEST_BYTES)
        assert code == 2, said
        assert message in said


@pytest.mark.parametrize("expression", ["1 << 10**9", "10**10**8"])
def test_a_constant_that_explodes_does_so_behind_the_wall_and_once(command, write, rows, expression):
    path = write("bomb.py", f"x = {expression}\n{EVALUATE}")
    check, run = both(path, rows)
    assert command(*check, *LIMITS, most_bytes=HOST_BYTES + GUEST_BYTES)[0] == 0
    code, said = command(*run, *LIMITS, most_bytes=HOST_BYTES + GUEST_BYTES)
    assert code == 2, said
    assert "while it was loaded" in said


def test_a_source_of_200_megabytes_is_not_read_to_its_end(command, rows, tmp_path):
    path = tmp_path / "huge.py"
    with path.open("wb") as file:
        file.truncate(200 * 1024**2)
    for arguments in both(path, rows):
        code, said = command(*arguments, most_bytes=HOST_BYTES)
        assert code == 2
        assert "larger than 1048576 bytes" in said


def test_a_million_lines_are_refused_and_stay_bounded_where_they_are_granted(command, write, rows):
    path = write("long.py", "x = 1\n" * 1_000_000 + EVALUATE)
    granted = ("--limit", "source_bytes=64MiB", *LIMITS)
    for arguments in both(path, rows):
        assert command(*arguments, most_bytes=HOST_BYTES)[0] == 2
        code, said = command(*arguments, *granted, most_bytes=HOST_BYTES + GUEST_BYTES)
        assert code == 2, said
        assert "could not be parsed within bounds" in said or "too large to parse" in said


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("native.so", b"\x7fELF" + bytes(100), "must end in .py or .ts"),
        ("module.wasm", b"\0asm\1\0\0\0", "must end in .py or .ts"),
        ("renamed_so.py", b"\x7fELF\x02\x01\x01" + bytes(range(256)), "not UTF-8"),
        ("renamed_wasm.py", b"\0asm\1\0\0\0" + bytes(100), "null bytes"),
        ("pickle.py", b"\x80\x04\x95cposix\nsystem\n(S'touch planted'\ntR.", "not UTF-8"),
        ("utf16.py", EVALUATE.encode("utf-16"), "not UTF-8"),
        ("latin1.py", "# \xfc\n".encode("latin-1") + EVALUATE.encode(), "not UTF-8"),
    ],
    ids=["so", "wasm", "renamed-so", "renamed-wasm", "pickle", "utf16", "latin1"],
)
def test_a_file_that_is_no_source_is_refused(command, rows, tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    for arguments in both(path, rows):
        code, said = command(*arguments, most_bytes=HOST_BYTES)
        assert code == 2, said
        assert message in said
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize("kind", ["fifo", "zero", "terminal", "directory", "loop", "socket"])
def test_what_is_no_file_is_refused_and_never_waited_for(command, rows, tmp_path, kind):
    path = tmp_path / "evaluator.py"
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "loop":
            path.symlink_to(path)
        case "socket":
            import socket

            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(path))
        case _:
            path.symlink_to({"zero": "/dev/zero", "terminal": "/dev/tty"}[kind])
    for arguments in both(path, rows):
        code, said = command(*arguments, most_bytes=HOST_BYTES)
        assert code == 2, said
        assert "evaluator.py" in said


def test_endless_output_of_many_rows_does_not_grow_the_host(command, write, rows):
    source = "import os\ndef evaluate(output):\n    while True: print('x' * 10**6); os.write(2, b'y' * 10**5)\n"
    data = rows([{"output": n} for n in range(4)])
    code, said = command(
        "run",
        write("e.py", source),
        "--data",
        data,
        *LIMITS,
        "--limit",
        "wall_seconds=0.3",
        most_bytes=HOST_BYTES + GUEST_BYTES,
    )
    assert code == 1, said
    assert "exceeded (wall_seconds) 4" in said


LOADING = {
    "loop": ("while True: pass", Exceeded),
    "swallowing": ("while True:\n    try:\n        while True: pass\n    except BaseException: pass", Exceeded),
    "sleep": ("import time; time.sleep(10**6)", Exceeded),
    "memory": ("kept = []\nwhile True: kept.append(bytearray(2**20))", Exceeded),
    "endless-text": ("class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E", Exceeded),
    "exit": ("import sys; sys.exit(0)", Raised),
    "recursion": ("def f(): return f()\nf()", Raised),
    "lying-fault": ("raise ConnectionResetError('A worker process died.')", Raised),
    "no-evaluate": ("del evaluate", Raised),
    "os-exit": ("import os; os._exit(0)", Crashed),
    "abort": ("import os; os.abort()", Crashed),
    "forged-code": ("import calling; calling._quote = lambda text: '5'", Invalid),
    "huge-report": ("import calling; calling._quote = lambda text: '\"' + 'x' * 10**7 + '\"'", Invalid),
}


@pytest.mark.parametrize("name", LOADING)
def test_a_module_that_misbehaves_while_it_is_loaded_says_so_in_time(name):
    code, kind = LOADING[name]
    seconds = 0.5 if kind is Exceeded else 5.0  # what fails by itself may take its time on a busy machine
    limits = Limits(load_seconds=seconds, memory_bytes=GUEST_BYTES)
    started = time.monotonic()
    program = Program(source=f"{EVALUATE}{code}\n", filename="e.py")
    with sandbox("wasm").open(program, Confinement(limits=limits)) as session:
        assert isinstance(session.loaded, kind), session.loaded
    assert time.monotonic() - started < seconds + 2


@pytest.mark.parametrize("name", ["loop", "memory", "exit", "os-exit"])
def test_a_module_that_misbehaves_while_it_is_loaded_is_one_error_and_not_one_a_row(command, write, rows, name):
    path = write("e.py", f"{EVALUATE}{LOADING[name][0]}\n")
    data = rows([{"output": n} for n in range(50)])
    code, said = command("run", path, "--data", data, *LIMITS, most_bytes=HOST_BYTES + GUEST_BYTES)
    assert code == 2, said
    assert said.count("error: ") == 1
