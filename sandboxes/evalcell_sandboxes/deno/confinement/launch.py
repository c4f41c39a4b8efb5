"""Confines this process, and has it become a command.

Started with its settings as arguments `name=value`, then `--` and the command. They are no JSON: to import what reads
that takes longer than all that is done here. Every wall that is not said to be missing must stand, or there is no
command. With `probe` among the settings it says instead which of them stand, and which cannot and why.
"""

import errno
import os
import resource
import sys

from . import filters, kernel, landlock

_ENDED_HERE = 125
"""The exit status where it never came to the command, which must not be taken for one of its own."""
_SIGKILL = 9
_DESCRIPTORS = 128
"""Deno has about 20 open, and some more for each of its workers. What lies in pipes counts to nobody's size."""
_THREADS = 256
_HOST_NAME = b"evaluator"
_COUNTED_BY_NAMESPACE = (5, 14)
"""Since this Linux, the limit of processes counts those in one's own user namespace, and not all of the user's."""
_ALWAYS_READABLE = ("/dev/null", "/dev/urandom", "/etc/ld.so.cache", "/proc/self/maps")
"""What says where the libraries are, and where the stack of the first thread is, without which there is no V8. The last
is the file of this process alone, which stays the same one over `execve`; no other file about a process is readable.
"""


class Settings:
    """What is said in the arguments."""

    def __init__(self, arguments: list[str]) -> None:
        end = arguments.index("--")
        self.command = arguments[end + 1 :]
        self._said = [argument.partition("=") for argument in arguments[:end]]

    def all(self, name: str) -> list[str]:
        return [value for said, _, value in self._said if said == name]

    def only(self, name: str) -> str:
        return self.all(name)[0]


def main() -> None:
    """Never returns."""
    settings = Settings(sys.argv[1:])
    missing = {wall: str(problem) for wall in _walls(settings) if (problem := _raise_wall(wall, settings)) is not None}
    if settings.all("probe"):
        _tell(missing)
    if missing:
        _end("; ".join(f"{wall}: {problem}" for wall, problem in missing.items()))
    _become(settings)


def _walls(settings: Settings) -> list[str]:
    without = settings.all("without")
    return [wall for wall in _WALLS if wall not in without] if sys.platform == "linux" else ["limits"]


def _raise_wall(wall: str, settings: Settings) -> OSError | None:
    try:
        _WALLS[wall](settings)
    except OSError as error:
        return error
    return None


def _join(settings: Settings) -> None:
    """Goes first, so that all memory that is touched from here on is counted."""
    for members in settings.all("group"):
        descriptor = os.open(members, os.O_WRONLY)
        os.write(descriptor, b"0")
        os.close(descriptor)


def _isolate(_settings: Settings) -> None:
    """Leaves the networks, the shared memory and the name of this machine.

    Whoever may not do that may in a user namespace of his own. It stays without a mapping of users: nobody in it is
    anybody outside, and to be root in it is of no use.
    """
    apart = kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    try:
        kernel.unshare(apart)
    except PermissionError:
        kernel.unshare(apart | kernel.CLONE_NEWUSER)
        _limit_threads()
    kernel.set_host_name(_HOST_NAME)


def _limit_threads() -> None:
    """Only in a namespace of its own: elsewhere all processes of the user would count, or root's not at all."""
    release = os.uname().release.split(".")
    if (int(release[0]), int(release[1])) >= _COUNTED_BY_NAMESPACE:
        _limit(resource.RLIMIT_NPROC, _THREADS)


def _bound(_settings: Settings) -> None:
    """A core would be written with 0 too, where a program receives them: only 1 says that there shall be none."""
    _limit(resource.RLIMIT_CORE, 1)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NOFILE, _DESCRIPTORS)
    if sys.platform == "linux":
        _limit(resource.RLIMIT_MEMLOCK, 0)
        _limit(resource.RLIMIT_MSGQUEUE, 0)


def _limit(which: int, most: int) -> None:
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


def _die_with_starter(settings: Settings) -> None:
    """The kernel forgets this where a process changes who it is, so it goes after all that does so."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != int(settings.only("starter")):  # it was gone before the kernel was told
        os._exit(_ENDED_HERE)


def _give_up_powers(_settings: Settings) -> None:
    """Leaves no capability, and no way to get one: not by `execve`, though this be root or the file setuid.

    Without the right to narrow the bounding set it is left: no new privileges also means none of those in it.
    """
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_CLEAR_ALL)
    if kernel.may(kernel.CAP_SETPCAP):
        for capability in range(64):
            try:
                kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                break  # that was the last one
    kernel.drop_capabilities()


def _hide_files(settings: Settings) -> None:
    given = [path for path in _ALWAYS_READABLE if os.path.exists(path)]  # noqa: PTH110 - pathlib is slow to import
    landlock.restrict(given + settings.all("readable"), settings.all("executable"))


def _filter_calls(_settings: Settings) -> None:
    machine = os.uname().machine
    if not filters.supported(machine):
        raise OSError(errno.ENOSYS, f"no list of system calls for {machine!r}")
    filters.install(machine)


_WALLS = {
    "group": _join,
    "namespaces": _isolate,
    "limits": _bound,
    "powers": _give_up_powers,
    "death": _die_with_starter,
    "landlock": _hide_files,
    "filter": _filter_calls,
}
"""In the order in which they are raised: each still needs what the next ones take."""


def _become(settings: Settings) -> None:
    """Leaves nothing of this process but standard input and output. Python has all others closed by `execve`."""
    environment = dict(variable.split("=", 1) for variable in settings.all("environment"))
    try:
        os.execve(settings.command[0], settings.command, env=environment)  # noqa: S606 - that is the point
    except OSError as error:
        _end(f"{settings.command[0]}: {error}")


def _tell(missing: dict[str, str]) -> None:
    sys.stdout.write("".join(f"{wall}={problem}\n" for wall, problem in missing.items()))
    sys.stdout.flush()
    os._exit(0)


def _end(problem: str) -> None:
    sys.stderr.write(f"evalcell: cannot confine a process: {problem}\n")
    sys.stderr.flush()
    os._exit(_ENDED_HERE)
