"""Which system calls an evaluator may make: our own seccomp profile, for a process without capabilities.

It starts from what engines allow by default, and takes away what no evaluator needs and an attack does: looking into
other processes, kernel features with a history of holes, and whatever would let one row leave something to the next
or slow down the supervisor, which has the same user. What is not named is refused.

Conditions compare all 64 bits of an argument, but the kernel reads many as 32 bits. "Everything but 4" would let
`4 + 2**32` through, which the kernel takes for 4. So conditions only ever name what is allowed.

Not in reach of a filter that sees numbers and no memory: file systems, addresses, what was opened before a fork.
"""

from typing import Literal

import msgspec

from evalcell_sandboxes.errors import SandboxUnavailable

_ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64", "arm64": "SCMP_ARCH_AARCH64"}
"""The machine's own, alone. With 32-bit calls allowed too, their numbers would need rules of their own."""

KEEPING = frozenset({"x86_64"})
"""Machines on which PID 1 can keep rows in the same memory: it has the numbers of calls written down for them."""

_ENOSYS = 38

_CLONE_FLAGS_REFUSED = (
    0x0002_0000  # NEWNS
    | 0x0200_0000  # NEWCGROUP
    | 0x0400_0000  # NEWUTS
    | 0x0800_0000  # NEWIPC
    | 0x1000_0000  # NEWUSER, in which a process has every capability and reaches kernel code that it must not
    | 0x2000_0000  # NEWPID
    | 0x4000_0000  # NEWNET
    | 0x0000_2000  # PTRACE
)
_CLONE_PARENT = 0x0000_8000
"""With it, a row could give the supervisor children that it did not start."""
_MAP_SHARED = 0x01
_MAP_ANONYMOUS = 0x20
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE = 0
_PRIO_PROCESS = 0
_IOPRIO_WHO_PROCESS = 1
_PR_SET_DUMPABLE = 4

# fmt: off
_PRCTL = {
    "SET_PDEATHSIG": 1, "GET_PDEATHSIG": 2, "GET_DUMPABLE": 3, "GET_UNALIGN": 5, "GET_KEEPCAPS": 7,
    "GET_FPEMU": 9, "GET_FPEXC": 11, "GET_TIMING": 13, "SET_NAME": 15, "GET_NAME": 16, "GET_ENDIAN": 19,
    "GET_SECCOMP": 21, "SET_SECCOMP": 22, "CAPBSET_READ": 23, "GET_TSC": 25, "GET_SECUREBITS": 27,
    "SET_TIMERSLACK": 29, "GET_TIMERSLACK": 30, "MCE_KILL_GET": 34, "GET_CHILD_SUBREAPER": 37,
    "SET_NO_NEW_PRIVS": 38, "GET_NO_NEW_PRIVS": 39, "GET_TID_ADDRESS": 40,
    "SET_THP_DISABLE": 41, "GET_THP_DISABLE": 42, "SVE_SET_VL": 50, "SVE_GET_VL": 51,
    "GET_SPECULATION_CTRL": 52, "SET_SPECULATION_CTRL": 53, "PAC_RESET_KEYS": 54,
    "SET_TAGGED_ADDR_CTRL": 55, "GET_TAGGED_ADDR_CTRL": 56, "PAC_SET_ENABLED_KEYS": 60, "PAC_GET_ENABLED_KEYS": 61,
    "SME_SET_VL": 63, "SME_GET_VL": 64, "SET_MDWE": 65, "GET_MDWE": 66,
    "GET_AUXV": 0x41555856, "SET_VMA": 0x53564D41,
}
# fmt: on
"""What a process may ask and set about itself. Missing: SET_PTRACER, SET_MM, SET_CHILD_SUBREAPER, SCHED_CORE."""

# fmt: off
_FCNTL = {
    "DUPFD": 0, "GETFD": 1, "SETFD": 2, "GETFL": 3, "SETFL": 4, "GETLK": 5, "SETLK": 6, "SETLKW": 7, "GETOWN": 9,
    "GETSIG": 11, "GETOWN_EX": 16, "OFD_GETLK": 36, "OFD_SETLK": 37, "OFD_SETLKW": 38, "GETLEASE": 1025,
    "DUPFD_CLOEXEC": 1030, "SETPIPE_SZ": 1031, "GETPIPE_SZ": 1032, "ADD_SEALS": 1033, "GET_SEALS": 1034,
    "GET_RW_HINT": 1035, "GET_FILE_RW_HINT": 1037,
}
"""Missing: SETOWN, SETOWN_EX and SETSIG, by which a file sends signals when its owner is long gone; SET_RW_HINT, which
stays with a file of the module."""
_IOCTL = {
    "TCGETS": 0x5401, "TCSETS": 0x5402, "TCSETSW": 0x5403, "TCSETSF": 0x5404, "TCSBRK": 0x5409, "TCFLSH": 0x540B,
    "TIOCSCTTY": 0x540E, "TIOCGPGRP": 0x540F, "TIOCSPGRP": 0x5410, "TIOCOUTQ": 0x5411, "TIOCGWINSZ": 0x5413,
    "TIOCSWINSZ": 0x5414, "FIONREAD": 0x541B, "FIONBIO": 0x5421, "TIOCGPTPEER": 0x5441, "FIONCLEX": 0x5450,
    "FIOCLEX": 0x5451, "TIOCGPTN": 0x8004_5430, "TIOCSPTLCK": 0x4004_5431, "TCGETS2": 0x802C_542A,
    "FICLONE": 0x4004_9409, "FS_IOC_GETFLAGS": 0x8008_6601, "SIOCATMARK": 0x8905, "SIOCGIFNAME": 0x8910,
    "SIOCGIFCONF": 0x8912, "SIOCGIFFLAGS": 0x8913, "SIOCGIFADDR": 0x8915, "SIOCGIFBRDADDR": 0x8919,
    "SIOCGIFNETMASK": 0x891B, "SIOCGIFMTU": 0x8921, "SIOCGIFHWADDR": 0x8927, "SIOCGIFINDEX": 0x8933,
    "SIOCETHTOOL": 0x8946,
}
# fmt: on
"""What is asked of terminals, pipes, sockets and interfaces. Missing, with others: FIOSETOWN, SIOCSPGRP, SETFLAGS."""
_SIGN = 0xFFFF_FFFF_0000_0000
"""Above a number whose 32nd bit is set, where it was taken for a negative one."""
_LISTENING = {"NOTIF_RECV": 0xC050_2100, "NOTIF_SEND": 0xC018_2101, "NOTIF_SET_FLAGS": 0x4008_2104}

_ALLOWED = {
    "Files and directories, as far as the mounts allow; no attributes, which stay on directories of the module": """
        access cachestat chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2
        fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fdatasync fgetxattr flistxattr flock
        fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr getxattrat lchown lgetxattr
        link linkat listxattr listxattrat llistxattr lseek lstat mkdir mkdirat mknod mknodat newfstatat open openat
        openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv rename
        renameat renameat2 rmdir sendfile splice stat statfs statx symlink symlinkat sync_file_range tee truncate umask
        unlink unlinkat utime utimensat utimes vmsplice write writev""",
    "Memory of its own; not memfd_create, whose memory outlives a fork and can be executed": """
        brk madvise map_shadow_stack membarrier mincore mlock mlock2 mlockall mprotect mremap mseal msync munlock
        munlockall munmap pkey_alloc pkey_free pkey_mprotect""",
    "Processes and threads: starting, ending, waiting, signals to those of the same container": """
        execve execveat exit exit_group fork futex futex_requeue futex_wait futex_waitv futex_wake get_robust_list
        getcpu getpgid getpgrp getpid getppid getpriority getrlimit getrusage getsid gettid ioprio_get kill pause
        pidfd_open pidfd_send_signal restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
        rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
        sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_yield
        set_robust_list set_tid_address setpgid setrlimit setsid sigaltstack tgkill times tkill vfork wait4 waitid""",
    "Who it is; nothing here gains what it does not have": """
        capget capset getegid geteuid getgid getgroups getresgid getresuid getuid setfsgid setfsuid setgid setgroups
        setregid setresgid setresuid setreuid setuid""",
    "Walls that a process puts around itself": """
        landlock_add_rule landlock_create_ruleset landlock_restrict_self seccomp""",
    "Time, read only, and timers": """
        alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time timer_create
        timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime""",
    "Pipes, and waiting for several things; gVisor calls pselect6 by another name": """
        epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 inotify_add_watch
        inotify_init inotify_init1 inotify_rm_watch pipe pipe2 poll ppoll pselect pselect6 select signalfd signalfd4""",
    "Sockets, once `socket` has let one be made": """
        accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg
        sendto setsockopt shutdown""",
    "The machine": "getrandom sysinfo uname",
}


class _Condition(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What one argument of a call must be."""

    index: int
    value: int
    op: Literal["SCMP_CMP_EQ", "SCMP_CMP_MASKED_EQ"]
    value_two: int = 0


class _Rule(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Calls that are allowed if all conditions hold. One of several rules for a call is enough."""

    comment: str
    names: list[str]
    args: list[_Condition] = []
    action: str = msgspec.field(default_factory=lambda: "SCMP_ACT_ALLOW")  # not a default, which would be left out
    errno_ret: int | None = None


class _Profile(msgspec.Struct, frozen=True, rename="camel"):
    default_action: str
    architectures: list[str]
    syscalls: list[_Rule]


def profile(machine: str, *, keeps: bool = False) -> str:
    """The profile for a machine, named as `uname -m` does: JSON for the engine's `security_opt` "seccomp=...".

    With `keeps`, PID 1 can put back the memory of other processes. What that takes is refused to all others by a second
    filter, before any user code is there (`guest/filters.py`): the engine's is the same for all processes.

    Raises:
        SandboxUnavailable: There is none for this machine.
    """
    if machine not in _ARCHITECTURES:
        raise SandboxUnavailable(
            "container",
            f"there is no list of allowed system calls for the machine {machine!r}. "
            f"Use an engine on one of {', '.join(sorted(_ARCHITECTURES))}.",
        )
    rules = [*_unconditional(machine), *_processes(keeps=keeps), *_files(), *_leaving_nothing(), *_sockets()]
    return msgspec.json.encode(_Profile("SCMP_ACT_ERRNO", [_ARCHITECTURES[machine]], rules)).decode()


def _unconditional(machine: str) -> list[_Rule]:
    rules = [_Rule(comment, names.split()) for comment, names in _ALLOWED.items()]
    if machine == "x86_64":
        rules.append(_Rule("Thread-local storage on this machine", ["arch_prctl"]))
    return rules


def _processes(*, keeps: bool) -> list[_Rule]:
    """Calls that could reach another process, or make one that nobody watches."""
    own = [_is(0, 0)]
    refused = _CLONE_FLAGS_REFUSED | (0 if keeps else _CLONE_PARENT)
    setters = ["prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"]
    return [
        _Rule("Processes and threads without namespaces", ["clone"], [_without(0, refused)]),
        _Rule(
            "Its flags lie in memory, where a filter cannot look; told that it is missing, libc uses clone",
            ["clone3"],
            action="SCMP_ACT_ERRNO",
            errno_ret=_ENOSYS,
        ),
        _Rule("Limits and scheduling of itself; of others it could throttle the supervisor", setters, own),
        _Rule("The same", ["setpriority"], [_is(0, _PRIO_PROCESS), _is(1, 0)]),
        _Rule("The same", ["ioprio_set"], [_is(0, _IOPRIO_WHO_PROCESS), _is(1, 0)]),
        _Rule("Nobody looks into a process that said so", ["prctl"], [_is(0, _PR_SET_DUMPABLE), _is(1, 0)]),
        *(_Rule(f"PR_{name}", ["prctl"], [_is(0, number)]) for name, number in _PRCTL.items()),
        _Rule("The usual personality", ["personality"], [_is(0, 0)]),
        _Rule("Asking for it", ["personality"], [_is(0, 0xFFFF_FFFF)]),
        *(_keeping() if keeps else ()),
    ]


def _keeping() -> list[_Rule]:
    return [
        _Rule(
            "Holding a process still and putting back its memory", ["ptrace", "process_vm_readv", "process_vm_writev"]
        ),
        _Rule("Letting itself be held", ["prctl"], [_is(0, _PR_SET_DUMPABLE), _is(1, 1)]),
        *(_Rule(name, ["ioctl"], [_is(1, number)]) for name, number in _LISTENING.items()),
    ]


def _files() -> list[_Rule]:
    return [
        *(_Rule(f"F_{name}", ["fcntl"], [_is(1, number)]) for name, number in _FCNTL.items()),
        *(_Rule(name, ["ioctl"], [_is(1, number)]) for name, number in _IOCTL.items()),
        *(
            _Rule(f"{name}, as musl passes it", ["ioctl"], [_is(1, number | _SIGN)])
            for name, number in _IOCTL.items()
            if number >> 31
        ),
    ]


def _leaving_nothing() -> list[_Rule]:
    """Memory that a module shares with all rows, if it makes it before they fork from it, would carry data across.

    This stops what happens by accident. It does not stop a module that maps /dev/zero or a file that it has removed,
    or keeps a pipe: to the filter these look like any file.
    """
    return [
        _Rule("Memory that is a file's", ["mmap"], [_without(3, _MAP_ANONYMOUS)]),
        _Rule("Memory that is not shared", ["mmap"], [_without(3, _MAP_SHARED)]),
    ]


def _sockets() -> list[_Rule]:
    """There is no network; these are for loopback, and for libraries that give up without."""
    families = (("AF_UNIX", _AF_UNIX), ("AF_INET", _AF_INET), ("AF_INET6", _AF_INET6))
    return [
        *(_Rule(name, ["socket"], [_is(0, family)]) for name, family in families),
        _Rule("Asking for interfaces", ["socket"], [_is(0, _AF_NETLINK), _is(2, _NETLINK_ROUTE)]),
        _Rule("Pairs within the process", ["socketpair"], [_is(0, _AF_UNIX)]),
    ]


def _is(index: int, value: int) -> _Condition:
    return _Condition(index, value, "SCMP_CMP_EQ")


def _without(index: int, bits: int) -> _Condition:
    """Of these bits none is set."""
    return _Condition(index, bits, "SCMP_CMP_MASKED_EQ", 0)
