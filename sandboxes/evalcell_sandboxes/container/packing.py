"""CPython of this very host as a root file system, for engines that cannot reach a registry.

The interpreter that evalcell runs on, its standard library and the shared libraries that they need are laid out as
in an image of Python: everything of Python beneath /usr/local. Left out are packages (an evaluator brings its own),
tests, and what needs a screen. There is no shell and no other program.

The same interpreter always gives the same bytes, so that the archive's digest names what is inside.
"""

import functools
import hashlib
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from evalcell_sandboxes.caching import replacing
from evalcell_sandboxes.container import libraries
from evalcell_sandboxes.errors import SandboxUnavailable
from evalcell_sandboxes.sandbox import Progress
from evalcell_sandboxes.site import bare

USER_ID = 65532
"""Whom evaluators run as. The number has no account on any usual host."""

_PREFIX = Path("usr/local")
_LEFT_OUT = (
    *("site-packages", "dist-packages", "__pycache__", "sitecustomize.py", "usercustomize.py", "EXTERNALLY-MANAGED"),
    *("test", "tests", "idle_test", "_test*.so", "_ctypes_test*", "_xxtest*", "xxlimited*"),
    *("idlelib", "tkinter", "_tkinter*", "turtle.py", "turtledemo"),
    *("ensurepip", "lib2to3", "config-*"),
)
_ZONES = Path("/usr/share/zoneinfo")
_SHARDS = 4
"""How many processes compile. Not as many as there are processors: what a process compiles together decides bytes."""

_FILES = {
    "etc/passwd": f"root:x:0:0::/:/nonexistent\nevaluator:x:{USER_ID}:{USER_ID}::/tmp:/nonexistent\n",
    "etc/group": f"root:x:0:\nevaluator:x:{USER_ID}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_DIRECTORIES = ("dev", "etc", "proc", "sys", "tmp")


class Packed(msgspec.Struct, frozen=True):
    """What was packed."""

    digest: str
    """The SHA-256 of the archive."""
    python: str
    """The version of the interpreter inside."""


def key() -> str:
    """Names what `pack` would pack, without packing: by the interpreter's build and file, libc, and this code.

    An update of a library alone, such as OpenSSL, does not change it.
    """
    executable = _executable()
    info = executable.stat()
    about = (
        *(sys.version, str(executable), info.st_size, info.st_mtime_ns),
        *(*platform.libc_ver(), platform.machine()),
        *(Path(module).read_bytes() for module in (__file__, libraries.__file__)),
    )
    return hashlib.sha256(repr(about).encode()).hexdigest()[:32]


def pack(target: Path, progress: Progress) -> Packed:
    """Packs this host's Python into a tar archive at `target`.

    Raises:
        SandboxUnavailable: It cannot be packed here; the message says why, and what to do instead.
    """
    if sys.platform != "linux":
        raise SandboxUnavailable(
            "container",
            f"a Python of {sys.platform!r} does not run in a container. Name an image that the engine can pull.",
        )
    with tempfile.TemporaryDirectory(prefix="evalcell-pack-") as scratch:
        root = Path(scratch)
        progress("Copying this host's Python", 0.0)
        _lay_out(root)
        progress("Compiling its standard library", 0.2)
        _compile(root)
        progress("Packing it", 0.9)
        with replacing(target) as temporary:
            _archive(root, temporary)
    with target.open("rb") as packed:
        return Packed(hashlib.file_digest(packed, "sha256").hexdigest(), platform.python_version())


def _executable() -> Path:
    """The interpreter itself, also where this one is a virtual environment's."""
    installed = Path(sys.base_prefix) / "bin" / f"python{sysconfig.get_python_version()}"
    return (installed if installed.exists() else Path(sys.executable)).resolve()


def _library() -> Path:
    """Where the standard library goes: where the interpreter looks for it from /usr/local/bin."""
    return _PREFIX / sys.platlibdir / f"python{sysconfig.get_python_version()}"


# Laying out


def _lay_out(root: Path) -> None:
    for name in _DIRECTORIES:
        (root / name).mkdir()
    for name, text in _FILES.items():
        (root / name).write_text(text, encoding="ascii")
    _lay_out_python(root)
    _lay_out_libraries(root)
    _lay_out_zones(root)


def _lay_out_python(root: Path) -> None:
    executable = f"python{sysconfig.get_python_version()}"
    _copy(_executable(), root / _PREFIX / "bin" / executable)
    for name in ("python3", "python"):
        (root / _PREFIX / "bin" / name).symlink_to(executable)
    for source in _standard_library():
        for path in _files_beneath(source):
            _copy(path, root / _library() / path.relative_to(source))
    (root / _library() / "site-packages").mkdir()


def _standard_library() -> list[Path]:
    """Its directory; two where what is native lies apart."""
    native = {"platbase": sys.base_exec_prefix}  # in a virtual environment it would be the environment's
    paths = sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib", vars=native)
    return [Path(path) for path in dict.fromkeys(paths)]


def _files_beneath(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if any(fnmatch(path.name, pattern) for pattern in _LEFT_OUT):
            continue
        if path.is_dir():
            yield from _files_beneath(path)
        elif path.is_file():  # and not a link to nothing
            yield path


def _lay_out_libraries(root: Path) -> None:
    modules = [path for source in _standard_library() for path in _files_beneath(source) if path.suffix == ".so"]
    needed = libraries.needed(_executable(), modules)
    for name, path in needed.files.items():
        _copy(path, root / needed.directory.relative_to("/") / name)
    _copy(needed.loader, root / needed.loader.relative_to("/"))


def _lay_out_zones(root: Path) -> None:
    """The time zones, which `zoneinfo` reads: 1 MB, with the many that have two names linked."""
    seen: dict[bytes, Path] = {}
    for path in sorted(_ZONES.rglob("*")) if _ZONES.exists() else []:
        within = path.relative_to(_ZONES)
        if within.parts[0] in {"posix", "right", "localtime", "posixrules"} or not path.is_file():
            continue
        content = path.read_bytes()
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if content in seen:
            target.hardlink_to(seen[content])
        elif content.startswith(b"TZif"):
            target.write_bytes(content)
            seen[content] = target


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(_re_rooted(source.name, source.read_bytes()))
    target.chmod(source.stat().st_mode & 0o777)


def _re_rooted(name: str, content: bytes) -> bytes:
    """The content without the path under which Python is installed here, which may say whose host this is.

    Python's record of its build gets the new path. Native code needs neither, since libraries lie where the loader
    looks unasked and Python searches from its executable; but its strings must keep their length. And a linker lets
    a string end in another: in ".../versions/3.11.7" lies "3.11.7". So there the last part stays, behind slashes.
    """
    here, there = os.fsencode(sys.base_prefix), b"/" + os.fsencode(_PREFIX)
    if here in {b"/usr", there}:  # which say nothing; and much else lies beneath /usr, and stays there
        return content
    if content.startswith(b"\x7fELF"):
        return _installed_at().sub((b"/" + os.path.basename(here)).rjust(len(here), b"/"), content)  # noqa: PTH119 - bytes
    return _installed_at().sub(there, content) if name.startswith("_sysconfigdata") else content


@functools.cache
def _installed_at() -> re.Pattern[bytes]:
    """The installation's path, and not that of a neighbour whose name begins with it."""
    return re.compile(re.escape(os.fsencode(sys.base_prefix)) + rb"(?![\w.+-])")


# Compiling


def _compile(root: Path) -> None:
    """Compiles the standard library, for a root that nobody can write to.

    Python never looks whether these files are up to date: with a time stamp it would, and the archive has none.
    """
    sources = sorted(str(path) for path in (root / _library()).rglob("*.py"))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        shards = [sources[number::_SHARDS] for number in range(_SHARDS)]
        for done in threads.map(functools.partial(_compile_shard, root), shards):
            if done.returncode != 0:
                raise SandboxUnavailable(
                    "container",
                    f"the standard library did not compile: {done.stdout[-500:]!r}. "
                    "Reinstall this host's Python, or name an image that the engine can pull.",
                )


def _compile_shard(root: Path, sources: list[str]) -> subprocess.CompletedProcess[str]:
    """In a process of its own, always in the same order: what was compiled before shows in the bytes."""
    environment = {name: value for name, value in bare().items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [
            *(str(_executable()), "-S", "-s", "-P", "-m", "compileall", "-q", "-f"),
            *("--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/", "-i", "-"),
        ],
        input="\n".join(sources),
        env={**environment, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


# Archiving


def _archive(root: Path, target: Path) -> None:
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            archive.add(path, path.relative_to(root), recursive=False, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The member without what differs between hosts: times, owners, the mask that files are made with."""
    member.mtime = 0
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    if member.name == "tmp":
        member.mode = 0o1777
    else:
        member.mode = 0o755 if member.isdir() or member.issym() or member.mode & 0o100 else 0o644
    return member
