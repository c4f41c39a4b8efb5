"""What our list of system calls refuses, and that the engine's own would not."""

import ctypes.util
import json
import platform
from pathlib import Path

import pytest
from boxed import ask, boxed, value
from promises import lacking

from evalcell_sandboxes import SandboxUnavailable
from evalcell_sandboxes.container import box, seccomp

CALLING = (Path(__file__).parent / "calling.py").read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(
    platform.machine() not in {"x86_64", "aarch64"}, reason="the numbers of system calls are written down for these"
)

REFUSED = {
    # Looking into other processes
    "ptrace": "call('ptrace', 0, 0, 0, 0)",
    "process_vm_readv": "call('process_vm_readv', os.getpid(), vectors(), 1, vectors(), 1, 0)",
    "process_vm_writev": "call('process_vm_writev', os.getpid(), vectors(), 1, vectors(), 1, 0)",
    "process_madvise": "call('process_madvise', -1, 0, 0, 0, 0)",
    "kcmp": "call('kcmp', os.getpid(), os.getpid(), 1, 0, 0)",
    "pidfd_getfd": "call('pidfd_getfd', os.pidfd_open(os.getpid()), 0, 0)",
    "being looked into again": "call('prctl', 4, 1, 0, 0, 0)",
    "being looked into again, in 64 bits": "call('prctl', 4 | 1 << 32, 1, 0, 0, 0)",
    "naming a tracer": "call('prctl', 0x59616d61, -1, 0, 0, 0)",
    # Kernel features with a history
    "io_uring_setup": "call('io_uring_setup', 1, vectors())",
    "io_uring_enter": "call('io_uring_enter', -1, 0, 0, 0, 0, 0)",
    "io_uring_register": "call('io_uring_register', -1, 0, 0, 0)",
    "keyctl": "call('keyctl', 0, -3, 0)",
    "add_key": "call('add_key', b'user', b'k', b'v', 1, -3)",
    "request_key": "call('request_key', b'user', b'k', 0, -3)",
    "userfaultfd": "call('userfaultfd', 1)",
    "bpf": "call('bpf', 0, 0, 0)",
    "perf_event_open": "call('perf_event_open', 0, 0, -1, -1, 0)",
    "a personality without address randomisation": "call('personality', 0x0040000)",
    # Namespaces and mounts
    "unshare": "call('unshare', 0x10000000)",
    "setns": "call('setns', os.open('/proc/self/ns/user', 0), 0)",
    "clone with a user namespace": "call('clone', 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)",
    "clone with a network namespace": "call('clone', 0x40000000 | signal.SIGCHLD, 0, 0, 0, 0)",
    "clone of a sibling": "call('clone', 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)",
    "mount": "call('mount', b'none', b'/tmp', b'tmpfs', 0, 0)",
    "umount2": "call('umount2', b'/tmp', 0)",
    "pivot_root": "call('pivot_root', b'/', b'/')",
    "open_tree": "call('open_tree', -1, b'/', 0)",
    "move_mount": "call('move_mount', -1, b'', -1, b'', 0)",
    "fsopen": "call('fsopen', b'tmpfs', 0)",
    "fsmount": "call('fsmount', -1, 0, 0)",
    "mount_setattr": "call('mount_setattr', -1, b'/', 0, 0, 0)",
    "name_to_handle_at": "call('name_to_handle_at', -100, b'/', 0, 0, 0)",
    "open_by_handle_at": "call('open_by_handle_at', -100, 0, 0)",
    # What would stay for the next row
    "shmget": "call('shmget', 0, 4096, 0o1600)",
    "shmat": "call('shmat', 0, 0, 0)",
    "shmctl": "call('shmctl', 0, 14, vectors())",
    "shmdt": "call('shmdt', 0)",
    "msgget": "call('msgget', 0, 0o1600)",
    "msgsnd": "call('msgsnd', 0, 0, 0, 0)",
    "msgrcv": "call('msgrcv', 0, 0, 0, 0, 0o4000)",
    "semget": "call('semget', 0, 1, 0o1600)",
    "semop": "call('semop', 0, 0, 0)",
    "semctl": "call('semctl', 0, 0, 0, 0)",
    "mq_open": "call('mq_open', b'queue', 0o102, 0o600, 0)",
    "mq_unlink": "call('mq_unlink', b'queue')",
    "memfd_create": "call('memfd_create', b'name', 0)",
    "shared anonymous memory": "call('mmap', 0, 4096, 3, 0x21, -1, 0)",
    "setxattr": "call('setxattr', b'/tmp', b'user.x', b'v', 1, 0)",
    "lsetxattr": "call('lsetxattr', b'/tmp', b'user.x', b'v', 1, 0)",
    "fsetxattr": "call('fsetxattr', -1, b'user.x', b'v', 1, 0)",
    "an attribute on a directory of its own": "os.makedirs('/tmp/own', exist_ok=True) or call('setxattr', b'/tmp/own', b'system.posix_acl_default', struct.pack('<IHHIHHIHHI', 2, 1, 7, 2**32 - 1, 4, 7, 2**32 - 1, 32, 7, 2**32 - 1), 28, 0)",
    "a hint on a file": "call('fcntl', os.open('/tmp/hinted', os.O_CREAT | os.O_RDWR), 1036, bytes(8))",
    "flags of a file": "call('ioctl', os.open('/tmp', 0), 0x40086602, vectors())",
    # Signals of a file whose owner is gone
    "whom a pipe sends signals": "call('fcntl', os.pipe()[0], 8, os.getpid())",
    "whom a pipe sends signals, in 64 bits": "call('fcntl', os.pipe()[0], 8 | 1 << 32, os.getpid())",
    "whom else a pipe sends signals": "call('fcntl', os.pipe()[0], 15, vectors())",
    "which signal": "call('fcntl', os.pipe()[0], 10, 9)",
    "whom a socket sends signals": "call('ioctl', socket.socketpair()[0].detach(), 0x8901, os.getpid().to_bytes(4, 'little'))",
    "whose group a socket sends signals": "call('ioctl', socket.socketpair()[0].detach(), 0x8902, os.getpid().to_bytes(4, 'little'))",
    # Throttling the supervisor, which is process 1
    "limits of another": "call('prlimit64', 1, 7, 0, vectors())",
    "affinity of another": "call('sched_setaffinity', 1, 8, (1).to_bytes(8, 'little'))",
    "scheduler of another": "call('sched_setscheduler', 1, 3, bytes(4))",
    "scheduling parameters of another": "call('sched_setparam', 1, bytes(4))",
    "scheduling attributes of another": "call('sched_setattr', 1, struct.pack('IIQiIQQQ', 48, 3, 0, 0, 0, 0, 0, 0), 0)",
    "priority of another": "call('setpriority', 0, 1, 5)",
    "priority of all": "call('setpriority', 2, 0, 5)",
    "input and output priority of another": "call('ioprio_set', 1, 1, 2 << 13 | 7)",
    # Sockets
    "AF_VSOCK": "call('socket', 40, 1, 0)",
    "AF_ALG": "call('socket', 38, 5, 0)",
    "AF_PACKET": "call('socket', 17, 3, 0)",
    "netlink for filters": "call('socket', 16, 3, 12)",
}


LET_THROUGH = [
    "a hint on a file",
    "whom a pipe sends signals",
    "whom a pipe sends signals, in 64 bits",
    "which signal",
    "whom a socket sends signals",
    "ptrace",
    "being looked into again",
    "being looked into again, in 64 bits",
    "clone of a sibling",
    "shmget",
    "msgget",
    "semget",
    "mq_open",
    "memfd_create",
    "shared anonymous memory",
    "an attribute on a directory of its own",
    "limits of another",
    "affinity of another",
    "scheduler of another",
    "scheduling parameters of another",
    "scheduling attributes of another",
    "priority of another",
    "priority of all",
    "input and output priority of another",
    "netlink for filters",
]
"""What the engine's own list does not refuse, in any version so far."""

ALLOWED = {
    "flags of a pipe": "call('fcntl', os.pipe()[0], 4, os.O_NONBLOCK)",
    "bytes in a pipe": "call('ioctl', os.pipe()[0], 0x541B, vectors())",
    "clone of a child": "call('clone', signal.SIGCHLD, 0, 0, 0, 0)",
    "hiding": "call('prctl', 4, 0, 0, 0, 0)",
    "naming a thread": "call('prctl', 15, b'name', 0, 0, 0)",
    "asking for the personality": "call('personality', 0xffffffff)",
    "private anonymous memory": "call('mmap', 0, 4096, 3, 0x22, -1, 0)",
    "shared memory of a file": "call('mmap', 0, 4096, 1, 0x01, os.open(sys.executable, 0), 0)",
    "limits of itself": "call('prlimit64', 0, 7, 0, vectors())",
    "affinity of itself": "call('sched_setaffinity', 0, 8, (1).to_bytes(8, 'little'))",
    "scheduler of itself": "call('sched_setscheduler', 0, 3, bytes(4))",
    "priority of itself": "call('setpriority', 0, 0, 5)",
    "input and output priority of itself": "call('ioprio_set', 1, 0, 2 << 13 | 7)",
    "AF_UNIX": "call('socket', 1, 1, 0)",
    "AF_INET": "call('socket', 2, 1, 0)",
    "AF_INET6": "call('socket', 10, 1, 0)",
    "netlink for interfaces": "call('socket', 16, 3, 0)",
    "a pair of sockets": "call('socketpair', 1, 1, 0, vectors())",
}

MISSING = {
    "clone3": "call('clone3', vectors(), 64)",
    "a call of the future": "call(700)",
}
"""What libc must take for absent, so that it uses something older."""

FOREIGN = {
    "a 32-bit call": r"machine_code(b'\xb8\x14\x00\x00\x00\xcd\x80\xc3')",  # mov eax, getpid; int 0x80; ret
    "an x32 call": "call(0x40000000 | 39)",
}
"""Other ways into the kernel of an x86_64, with numbers of their own."""


def attempts(table: dict[str, str]) -> str:
    return f"{CALLING}\nreport({table!r})"


@pytest.fixture(scope="module")
def with_ours(run, ours):
    return json.loads(run(attempts(REFUSED | ALLOWED | MISSING | FOREIGN), allowed=ours))


@pytest.fixture(scope="module")
def with_the_engines(run):
    return json.loads(run(attempts(REFUSED | FOREIGN)))


@pytest.mark.parametrize("name", REFUSED)
def test_refused(with_ours, name):
    assert with_ours[name] == "EPERM"


INSIDE = f"""
{CALLING}
def all_tried():
    return {{name: tried(expression) for name, expression in {REFUSED!r}.items()}}
AT_LOAD = all_tried()
def evaluate(output):
    return AT_LOAD if output == "module" else all_tried()
"""


@pytest.fixture(scope="module", params=["row", "evaluator"])
def inside(request, container_wall):
    """What is refused to user code itself: for rows of their own the engine's list lets PID 1 do more than others."""
    with boxed(container_wall, INSIDE, isolation=request.param, wall_seconds=60.0, load_seconds=60.0) as session:
        return {"module": value(*ask(session, "module")), "row": value(*ask(session, "row"))}


@pytest.mark.parametrize("who", ["module", "row"])
def test_refused_to_user_code(inside, who):
    assert {name: came for name, came in inside[who].items() if came != "EPERM"} == {}


@pytest.fixture
def deaf(monkeypatch):
    """As with a kernel that lets nobody listen to what a filter has to tell."""
    sources = dict(box.modules())
    sources["filters"] = sources["filters"].replace("_install(_telling(), flags)", "_install(_telling(), 1 << 20)")
    assert sources["filters"] != box.modules()["filters"]
    monkeypatch.setattr(box, "modules", lambda: sources)


@pytest.mark.parametrize("who", ["module", "row"])
def test_refused_to_user_code_where_nobody_can_listen(deaf, container_wall, who):
    with boxed(container_wall, INSIDE, wall_seconds=60.0, load_seconds=60.0) as session:
        came = value(*ask(session, who))
    assert {name: what for name, what in came.items() if what != "EPERM"} == {}


def test_the_list_for_pid_1_alone_would_let_it_through(run):
    """The control: it is the filter inside that refuses."""
    names = ("ptrace", "being looked into again", "clone of a sibling", "process_vm_readv", "process_vm_writev")
    allowed = seccomp.profile(platform.machine(), keeps=True)
    came = json.loads(run(attempts({name: REFUSED[name] for name in names}), allowed=allowed))
    assert came == dict.fromkeys(names, "allowed")


@pytest.mark.parametrize("name", LET_THROUGH)
def test_the_engine_alone_would_let_it_through(with_the_engines, name):
    assert with_the_engines[name] == "allowed"


def test_an_older_engine_alone_would_let_io_uring_through(engine, with_the_engines):
    if int(engine.version()["Version"].split(".")[0]) >= 25:
        pytest.skip("this engine refuses it too")
    assert with_the_engines["io_uring_setup"] != "EPERM"


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(with_ours, name):
    assert with_ours[name] == "allowed"


@pytest.mark.parametrize("name", MISSING)
def test_told_to_be_missing(with_ours, name):
    assert with_ours[name] == "ENOSYS"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only this machine has several ways into its kernel")
@pytest.mark.parametrize("name", FOREIGN)
def test_calls_of_other_architectures_end_the_process(with_ours, with_the_engines, name):
    assert with_ours[name] == "SIGSYS"
    assert with_the_engines[name] != "SIGSYS"


def test_a_process_knows_that_it_is_confined(run, ours):
    code = (
        "print(*[line for line in open('/proc/self/status') if line.startswith(('CapEff', 'NoNewPrivs', 'Seccomp:'))])"
    )
    assert run(code, allowed=ours).split() == ["CapEff:", "0000000000000000", "NoNewPrivs:", "1", "Seccomp:", "2"]


@pytest.mark.parametrize(
    ("machine", "architecture"), [("x86_64", "X86_64"), ("aarch64", "AARCH64"), ("arm64", "AARCH64")]
)
def test_each_machine_has_its_own_architecture_alone(machine, architecture):
    profile = json.loads(seccomp.profile(machine))
    assert profile["architectures"] == [f"SCMP_ARCH_{architecture}"]
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert all(rule["comment"] for rule in profile["syscalls"])


@pytest.mark.parametrize("keeps", [False, True])
def test_no_rule_puts_two_conditions_on_one_argument(keeps):
    """The engine's runtime would take either for enough."""
    for rule in json.loads(seccomp.profile("x86_64", keeps=keeps))["syscalls"]:
        indexes = [condition["index"] for condition in rule.get("args", [])]
        assert len(indexes) == len(set(indexes)), rule


@pytest.mark.parametrize("keeps", [False, True])
def test_a_call_with_conditions_is_nowhere_allowed_without(keeps):
    rules = json.loads(seccomp.profile("x86_64", keeps=keeps))["syscalls"]
    conditional = {name for rule in rules if "args" in rule for name in rule["names"]}
    assert conditional.isdisjoint(name for rule in rules if "args" not in rule for name in rule["names"])


NEWER = """
cachestat fchmodat2 futex_requeue futex_wait futex_wake getxattrat listxattrat map_shadow_stack mseal
"""
"""Calls that an older libseccomp has not heard of. An engine with such a one leaves them out."""
GVISORS = "pselect"
"""What gVisor calls a call that others call something else."""


def test_every_name_is_a_system_call():
    """An engine passes over a name that it does not know, so a slip would show as a call that fails."""
    library = ctypes.util.find_library("seccomp")
    if library is None:
        lacking("there is no libseccomp here to ask")
    known = ctypes.CDLL(library).seccomp_syscall_resolve_name
    names = {name for rule in json.loads(seccomp.profile("x86_64", keeps=True))["syscalls"] for name in rule["names"]}
    assert {name for name in names if known(name.encode()) == -1} <= {*NEWER.split(), GVISORS}


def test_a_machine_without_a_list_is_refused():
    with pytest.raises(SandboxUnavailable, match="no list of allowed system calls for the machine 'riscv64'"):
        seccomp.profile("riscv64")
