"""Runs uv, which resolves and installs: in a directory of its own, with the user's settings, watched until it ends.

What uv unpacks was made by strangers. None of it is ever executed here: wheels alone are taken, nothing is built and
nothing compiled. What is left to fear is size, so everything that uv writes is weighed while it runs.
"""

import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from evalcell_sandboxes.caching import alone, cache_dir, cache_path, private_dir
from evalcell_sandboxes.container import complaints, indexes
from evalcell_sandboxes.container.trees import Growth, discard, weight
from evalcell_sandboxes.disk import Kept
from evalcell_sandboxes.errors import DependencyProblem
from evalcell_sandboxes.sandbox import Progress

MOST_BYTES = 10 * 1024**3
"""What an evaluator's packages may weigh unpacked. The heaviest that people use, with CUDA, are about 7 GiB."""

# Settings of the user that would undo what is promised here, or that are said on the command line.
_NOT_HANDED_ON = frozenset(
    {
        "RUST_LOG",
        "UV_BREAK_SYSTEM_PACKAGES",
        "UV_COMPILE_BYTECODE",
        "UV_CUSTOM_COMPILE_COMMAND",
        "UV_ENV_FILE",
        "UV_LINK_MODE",
        "UV_NO_BINARY",
        "UV_NO_BINARY_PACKAGE",
        "UV_NO_CACHE",
        "UV_NO_PROGRESS",
        "UV_NO_VERIFY_HASHES",
        "UV_PROJECT",
        "UV_PYTHON",
        "UV_REQUIRE_HASHES",
        "UV_SYSTEM_PYTHON",
        "UV_WORKING_DIR",
        "UV_WORKING_DIRECTORY",
        "VIRTUAL_ENV",
    }
)
_WATCH_SECONDS = 0.2
_KEPT_BYTES = 64 * 1024


class Workplace:
    """A directory for one run of uv, and the cache that runs share, held by nobody else meanwhile."""

    def __init__(self, cache: Path, directory: Path, withheld: Collection[str] = ()) -> None:
        self.cache = cache
        self.directory = directory
        kept_back = _NOT_HANDED_ON | {name for name in withheld if not indexes.steers(name)}
        self._told = {name: value for name, value in os.environ.items() if name not in kept_back}

    def run(
        self,
        arguments: Sequence[str],
        text: str,
        *,
        doing: str,
        seconds: float,
        most_bytes: int,
        watched: Sequence[Path] = (),
        heard: Callable[[str], None] | None = None,
    ) -> str:
        """Runs uv with the text as its input and gives what it printed. `heard` is told each line of its progress.

        Raises:
            DependencyProblem: The packages cannot be had as they are asked for.
            SandboxUnavailable: uv, its index or the room on the disk is missing.
        """
        growth = Growth([self.cache, self.directory, *watched])
        with self._started(arguments, text, most_bytes) as process:
            try:
                complaint = _follow(process, growth, most_bytes, time.monotonic() + seconds, heard or _deaf)
            except _Stopped as stopped:
                _kill(process)
                discard(self.cache)  # half an archive, or a whole bomb, lies somewhere in it
                raise DependencyProblem(f"Could not {doing}: {stopped}") from None
        if process.returncode != 0:
            raise complaints.error(complaint, doing)
        return (self.directory / "output").read_text(encoding="utf-8")

    @contextmanager
    def _started(self, arguments: Sequence[str], text: str, most_bytes: int) -> Iterator[subprocess.Popen[bytes]]:
        given = self.directory / "input"
        given.write_text(text, encoding="utf-8")
        with given.open("rb") as stdin, (self.directory / "output").open("wb") as stdout:
            process = subprocess.Popen(
                [binary(), *arguments, *_always(self._told)],
                cwd=self.directory,
                env=self._environment(),
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                start_new_session=True,  # so that it can be killed with whatever it has started
            )
        with process:
            try:
                if sys.platform == "linux":  # elsewhere the watch alone stops a file that does not end
                    with suppress(ProcessLookupError):
                        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
                yield process
            finally:
                _kill(process)

    def _environment(self) -> dict[str, str]:
        own = {"UV_CACHE_DIR": str(self.cache), "TMPDIR": str(self.directory)}
        return {**self._told, **indexes.variables(self._told), **own}


@contextmanager
def workplace(progress: Progress, withheld: Collection[str] = ()) -> Iterator[Workplace]:
    """Makes the directory in which uv runs, and waits until no other process uses the cache. uv is told of the user's
    environment, because there are many ways to sign in to an index, but for the variables that are withheld. What says
    where packages come from is not: they would come from somewhere else.

    The cache is evalcell's own, also where `UV_CACHE_DIR` is set. In a cache that is shared with the user's other
    work there may be wheels that were built here from source, which uv would take for good ones; and what strangers
    have packed would lie where the user's own environments are linked from. Alone in it, one can weigh it and, after
    an archive without end, throw it away.
    """
    home = private_dir(cache_dir() / "uv")
    with alone(home / ".lock", progress, "another installation to end"):
        for left in (*home.glob("work-*"), *home.glob("cache/.tmp*")):  # by runs that were killed
            discard(left)
        directory = Path(tempfile.mkdtemp(prefix="work-", dir=home))
        try:
            # uv looks for settings in this directory and in those above it, up to the first that it finds. This one
            # ends the search, whoever can write above. The user's own and the system's are read besides.
            (directory / "uv.toml").touch()
            yield Workplace(private_dir(home / "cache"), directory, withheld)
        finally:
            discard(directory)


def kept() -> list[Kept]:
    """The cache, which spares a download where packages are needed again."""
    home = cache_path() / "uv"
    try:
        return [Kept("download", "uv", weight(home / "cache"), (home / ".lock").stat().st_mtime)]
    except OSError:  # there is none
        return []


def discard_cache() -> bool:
    """Throws the cache away, unless somebody is using it."""
    home = private_dir(cache_dir() / "uv")
    try:
        with FileLock(home / ".lock", timeout=0, mode=0o600):
            discard(home / "cache")
    except Timeout:
        return False
    return True


def binary() -> str:
    """The path of uv.

    Raises:
        SandboxUnavailable: It is not installed.
    """
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        raise complaints.unavailable(
            "uv, which resolves and installs packages, is missing. Install it with: pip install 'evalcell[container]'"
        ) from None


def minor(python: str) -> str:
    """'3.12' for '3.12.4'."""
    return ".".join(python.split(".")[:2])


def _always(environ: Mapping[str, str]) -> list[str]:
    """What holds for every run: wheels alone, no Python but this one, and no index where pip is told to ask none."""
    flags = ["--only-binary", ":all:", "--python", sys.executable, "--no-python-downloads", "--color", "never"]
    return [*flags, "--no-index"] if indexes.without_index(environ) else flags


def _deaf(line: str) -> None:
    """Hears nothing."""


class _Stopped(Exception):
    """uv had to be killed; the message says why."""


def _follow(
    process: subprocess.Popen[bytes],
    growth: Growth,
    most_bytes: int,
    deadline: float,
    heard: Callable[[str], None],
) -> str:
    """Reads what uv complains about until it ends, and gives the last of it."""
    assert process.stderr is not None
    kept, partial, next_look = b"", b"", 0.0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while True:
            if selector.select(_WATCH_SECONDS):
                chunk = os.read(process.stderr.fileno(), _KEPT_BYTES)
                if not chunk:
                    break
                kept = (kept + chunk)[-_KEPT_BYTES:]
                *lines, partial = (partial[-_KEPT_BYTES:] + chunk).split(b"\n")
                for line in lines:
                    heard(line.decode(errors="replace"))
            next_look = _look(growth, most_bytes, deadline, next_look)
    if process.wait() == -signal.SIGXFSZ or growth.weight() > most_bytes:
        raise _Stopped(_too_large(most_bytes))
    return kept.decode(errors="replace")


def _look(growth: Growth, most_bytes: int, deadline: float, next_look: float) -> float:
    """Weighs and looks at the clock, unless that was done just now. Gives the time of the next look."""
    began = time.monotonic()
    if began < next_look:
        return next_look
    if began > deadline:
        raise _Stopped("it took too long and was stopped. Try again, and check the network if it happens twice.")
    if growth.weight() > most_bytes:
        raise _Stopped(_too_large(most_bytes))
    ended = time.monotonic()
    return ended + max(_WATCH_SECONDS, 5 * (ended - began))  # weighing takes a sixth of the time at most


def _too_large(most_bytes: int) -> str:
    return (
        f"unpacked, the packages weigh more than {most_bytes / 1024**2:,.0f} MiB, which is the most they may. "
        "Ask for fewer or smaller ones."
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
