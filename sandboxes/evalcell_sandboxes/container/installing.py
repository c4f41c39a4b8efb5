"""Installs what a lock names into a directory that becomes a layer of the container. Runs none of it.

uv takes wheels alone, of the container's platform and not of this one, checks every file against the lock and unpacks
it. What comes out is walked once more: a layer holds directories and regular files and nothing else.
"""

import re
import stat
from collections.abc import Collection
from pathlib import Path

from evalcell_sandboxes.container import complaints, uv
from evalcell_sandboxes.container.locking import check, packages
from evalcell_sandboxes.container.trees import below, discard
from evalcell_sandboxes.errors import DependencyProblem
from evalcell_sandboxes.sandbox import Progress

_INSTALL_SECONDS = 3600
_DEEPEST = 64
_DOWNLOADING = re.compile(r"Downloading ([\w.\-]+) \(([\d.]+)([KMG]i?B)\)")
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
# The values of uv's --python-platform: for each of these glibc 2.x there is one, and one for musl from 1.2 on.
_GLIBC_MINORS = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)
_MUSL = (1, 2)


def platform_of(machine: str, libc: str) -> str:
    """What uv calls the newest platform that runs there: 'x86_64-manylinux_2_36' for 'x86_64' and 'glibc 2.36'.

    Raises:
        SandboxUnavailable: There is none.
    """
    known = _MACHINES.get(machine.lower())
    found = re.fullmatch(r"(glibc|musl) (\d+)\.(\d+).*", libc)
    if known is not None and found is not None:
        version = (int(found[2]), int(found[3]))
        if found[1] == "musl" and version >= _MUSL:
            return f"{known}-unknown-linux-musl"
        fitting = [minor for minor in _GLIBC_MINORS if (2, minor) <= version]
        if found[1] == "glibc" and fitting:
            return f"{known}-manylinux_2_{fitting[-1]}"
    raise complaints.unavailable(
        f"there are no packages for the machine {machine!r} with the C library {libc!r}. "
        "Use a base image for x86_64 or aarch64 with glibc 2.17, musl 1.2 or newer."
    )


def install(
    lock: str,
    target: Path,
    *,
    python: str,
    platform: str,
    progress: Progress,
    withheld: Collection[str] = (),
    most_bytes: int = uv.MOST_BYTES,
) -> int:
    """Fills an empty directory with the packages of a lock and gives their size in bytes. Removes it if that fails. The
    installer is told of the user's environment but for the variables that are withheld.

    Raises:
        ValueError: The lock is none, or the directory holds something.
        DependencyProblem: A package has no wheel for that platform, other bytes than were locked, or a forbidden file.
        SandboxUnavailable: uv, the index or the room on the disk is missing.
    """
    check(lock)
    target.mkdir(exist_ok=True)
    if any(target.iterdir()):
        raise ValueError(f"Packages are installed into an empty directory, and {str(target)!r} holds something.")
    try:
        names = complaints.listed(packages(lock))
        with uv.workplace(progress, withheld) as place:
            progress(f"Installing {names}")
            place.run(
                [
                    *_FLAGS,
                    "--python-version",
                    python,
                    "--python-platform",
                    platform,
                    "--target",
                    str(target.absolute()),
                ],
                lock,
                doing=f"install {names}",
                seconds=_INSTALL_SECONDS,
                most_bytes=most_bytes,
                watched=[target.absolute()],
                heard=lambda line: _tell(line, progress),
            )
        _drop_scripts(target)
        return _settle(target)
    except BaseException:
        discard(target)
        raise


_FLAGS = [
    *("pip", "install", "--requirements", "-"),
    "--no-deps",  # the lock holds them all
    "--require-hashes",
    "--no-compile-bytecode",
    *("--link-mode", "copy"),  # never a file that the cache has too
]


def _tell(line: str, progress: Progress) -> None:
    if (found := _DOWNLOADING.match(line)) is not None:
        progress(f"Downloading {found[1]} ({found[2]} {found[3]})")


def _drop_scripts(target: Path) -> None:
    """Console scripts name this host's Python, and the lock file of uv is nobody's business."""
    scripts = target / "bin"
    if scripts.is_dir() and not scripts.is_symlink():
        discard(scripts)
    (target / ".lock").unlink(missing_ok=True)


def _settle(target: Path) -> int:
    """Gives every entry the mode that any user in the container can read, and adds up the sizes.

    Nothing but directories and regular files passes. A link could point at a file of the host when the layer is
    packed, and a device or a set-user-id bit has no place among packages.
    """
    total = 0
    target.chmod(0o755)
    for entry in below(target):
        path = Path(entry.path)
        info = path.lstat()
        if len(path.relative_to(target).parts) > _DEEPEST:
            raise _forbidden(path.relative_to(target), f"lies more than {_DEEPEST} directories deep")
        if stat.S_ISDIR(info.st_mode):
            path.chmod(0o755)
        elif stat.S_ISREG(info.st_mode):
            path.chmod(0o755 if info.st_mode & stat.S_IXUSR else 0o644)
            total += info.st_size
        else:
            raise _forbidden(path.relative_to(target), "is a link or a special file")
    return total


def _forbidden(path: Path, why: str) -> DependencyProblem:
    return DependencyProblem(
        f"A package holds {str(path)[:200]!r}, which {why}, and a layer holds nothing of the kind. "
        "Nothing was installed; choose another version or package."
    )
