"""What an evaluator finds around it, asked from inside, and what the engine says of its container."""

import os
import socket

import pytest
from boxed import ask, boxed, value
from docker.models.containers import Container

LOOK = r'''
import ctypes, json, os, resource, socket, stat, subprocess, sys

def status():
    with open("/proc/self/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)

def mounts():
    """Where something is mounted, of which kind, from where and how."""
    with open("/proc/self/mountinfo") as file:
        lines = [line.split() for line in file]
    return [[at[4], at[at.index("-") + 1], at[at.index("-") + 2], at[3], at[5].split(",")] for at in lines]

def writable():
    """Directories outside of /tmp and the kernel's own in which a file could be made, and which refuse for what."""
    found, refused = [], {}
    for top, names, _ in os.walk("/"):
        names[:] = [name for name in names if os.path.join(top, name) not in ("/proc", "/sys", "/tmp")]
        try: os.close(os.open(os.path.join(top, "planted"), os.O_CREAT | os.O_WRONLY))
        except OSError as error: refused.setdefault(error.errno, []).append(top)
        else: found.append(top)
    return [found, refused]

def kernel_writable():
    """Files of the kernel's that could be written to, beside those of this very process."""
    found = []
    for top, names, files in os.walk("/proc"):
        if top == "/proc": names[:] = [name for name in names if not name.isdigit() and name not in ("self", "thread-self")]
        found += [path for name in files if os.access(path := os.path.join(top, name), os.W_OK)]
    for top, _, files in os.walk("/sys"):
        found += [path for name in files if os.access(path := os.path.join(top, name), os.W_OK)]
    opened = []
    for path in found:
        if stat.S_ISCHR(os.stat(path).st_mode): continue  # the engine puts /dev/null over what nobody should see
        try: os.close(os.open(path, os.O_WRONLY))
        except OSError: continue
        opened.append(path)
    return opened

def descriptors():
    """What is open: what `fstat` says of every number, for the list of them is not to be had."""
    found = {}
    for number in range(1024):
        try: mode = os.fstat(number).st_mode
        except OSError: continue
        found[number] = next(name for name in ("CHR", "REG", "SOCK", "FIFO", "DIR", "BLK", "LNK") if getattr(stat, f"S_IS{name}")(mode))
    return found

def devices():
    return {name: [os.major(at.st_rdev), os.minor(at.st_rdev)] for name in os.listdir("/dev")
            if stat.S_ISCHR((at := os.lstat(f"/dev/{name}")).st_mode) or stat.S_ISBLK(at.st_mode)}

def set_user_ids():
    return [path for top, _, files in os.walk("/", onerror=None) if not top.startswith(("/proc", "/sys"))
            for name in files if os.lstat(path := os.path.join(top, name)).st_mode & 0o6000]

def execute_from_scratch():
    with open("/tmp/tool", "w") as file: file.write("#!/bin/sh\n")
    os.chmod("/tmp/tool", 0o7755)
    try: subprocess.run(["/tmp/tool"])
    except OSError as error: return error.errno
    return 0

def read(*paths):
    for path in paths:
        try:
            with open(path) as file: return file.read().split()
        except OSError: continue

def evaluate(output):
    return eval(output)
'''


@pytest.fixture(scope="module")
def session(container_wall):
    with boxed(container_wall, LOOK, environment={"GRANTED": "by the operator"}, memory_bytes=256 * 1024**2) as session:
        yield session


@pytest.fixture
def seen(session):
    """What an expression gives in there."""
    return lambda expression: value(*ask(session, expression))


@pytest.fixture
def container(session, engine) -> Container:
    """The container, as the engine sees it."""
    return engine.containers.get(session._box._name)


def test_it_is_nobody(seen):
    users, groups, others = seen("[os.getresuid(), os.getresgid(), os.getgroups()]")
    assert users == groups == others * 3
    assert 20_000 <= users[0] < 60_000


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, "0000000000000000") for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
    ],
)
def test_it_can_become_nobody_else(seen, name, expected):
    assert seen("status()")[name] == expected


@pytest.mark.parametrize("call", ["os.setuid(0)", "os.setgid(0)", "os.setgroups([0])", "os.chroot('/tmp')"])
def test_it_is_refused_what_root_may(session, call):
    (outcome,) = ask(session, call)
    assert outcome.exception == "PermissionError"


def test_there_is_nothing_that_runs_as_somebody_else(seen):
    """The base that was packed has none; those of other images are of no use, because no privilege can be gained."""
    assert seen("set_user_ids()") == []
    assert seen("execute_from_scratch()") == 13


def test_nothing_can_be_written_but_its_own_directory(seen):
    found, refused = seen("writable()")
    assert found == []
    assert len(refused.pop("30")) > 50  # a read-only file system, before anybody looks at permissions
    assert all(top.startswith("/dev") for tops in refused.values() for top in tops)  # which is the engine's
    assert seen("open('/tmp/planted', 'w').write('x')") == 1


def test_nothing_of_the_kernel_can_be_written(seen):
    """Anybody may ask for news of how busy a machine is, where its kernel gives them."""
    assert [path for path in seen("kernel_writable()") if not path.startswith("/proc/pressure/")] == []


KERNELS_OWN = {"overlay", "proc", "tmpfs", "devpts", "sysfs", "cgroup", "cgroup2", "mqueue"}


def test_nothing_of_the_host_is_mounted(seen):
    mounts = seen("mounts()")
    of_a_disk = {place for place, kind, *_ in mounts if kind not in KERNELS_OWN}
    assert of_a_disk <= {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}  # made by the engine for this container
    assert "/dev/shm" not in [place for place, *_ in mounts]
    assert all("ro" in options for place, *_, options in mounts if place in {"/", "/sys", *of_a_disk})


def test_the_engine_cannot_be_reached(seen, engine_address):
    places = ["/var/run/docker.sock", "/run/docker.sock", engine_address.removeprefix("unix://")]
    assert seen(f"[os.path.lexists(place) for place in {places!r}]") == [False] * 3


def test_its_directory_is_small_and_nothing_in_it_is_executed(seen):
    (options,) = [options for place, _, _, _, options in seen("mounts()") if place == "/tmp"]
    assert {"rw", "noexec", "nosuid", "nodev"} <= set(options)
    assert seen("os.statvfs('/tmp').f_blocks * os.statvfs('/tmp').f_frsize") == 64 * 1024**2
    assert seen("os.statvfs('/tmp').f_files") == 10_000


def test_devices_are_the_harmless_few(seen):
    harmless = {
        "null": [1, 3], "zero": [1, 5], "full": [1, 7], "random": [1, 8], "urandom": [1, 9], "tty": [5, 0],
        "ptmx": [5, 2], "console": [5, 1],
    }  # fmt: skip
    assert seen("devices()").items() <= harmless.items()
    assert seen("os.path.exists('/dev/shm')") is False


def test_three_files_and_one_socket_are_open(seen):
    found = seen("descriptors()")
    assert {found.pop("0"), found.pop("1"), found.pop("2")} == {"CHR", "REG"}
    assert list(found.values()) == ["SOCK"]


def test_the_environment_holds_what_it_should(seen):
    names = ["GRANTED", "HOME", "LANG", "LOGNAME", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TMPDIR", "USER"]  # fmt: skip
    assert seen("sorted(os.environ)") == names
    assert seen("os.environ['GRANTED']") == "by the operator"


def test_there_is_no_network(seen, session):
    assert seen("[name for _, name in socket.if_nameindex() if 'UP' in open(f'/sys/class/net/{name}/operstate').read().upper() or name == 'lo']") == ["lo"]  # fmt: skip
    assert seen("len(open('/proc/net/route').read().splitlines())") <= 1
    (outcome,) = ask(session, "socket.create_connection(('1.1.1.1', 80), 1)")
    assert outcome.exception == "OSError"


def test_it_does_not_know_its_host(seen):
    assert seen("socket.gethostname()") == "sandbox"
    assert socket.gethostname() not in seen("[open('/etc/hostname').read(), open('/etc/hosts').read()]")
    assert seen("os.getpid()") < 32_768
    assert seen("len([name for name in os.listdir('/proc') if name.isdigit()])") == 3


def test_limits_are_in_force(seen):
    memory = seen("read('/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory/memory.limit_in_bytes')")
    assert memory == [str((256 + 64 + 64) * 1024**2)]
    assert seen("read('/sys/fs/cgroup/pids.max', '/sys/fs/cgroup/pids/pids.max')") == ["128"]
    assert seen("read('/sys/fs/cgroup/cpu.max', '/sys/fs/cgroup/cpu/cpu.cfs_quota_us')")[0] == "100000"
    assert seen(
        "[resource.getrlimit(getattr(resource, 'RLIMIT_' + name)) for name in ('NOFILE', 'CORE', 'FSIZE')]"
    ) == [
        [1024, 1024],
        [0, 0],
        [64 * 1024**2] * 2,
    ]
    assert seen("os.nice(0)") == 5


def test_the_engine_says_the_same(container):
    held = container.attrs["HostConfig"]
    expected = {
        "AutoRemove": True, "NetworkMode": "none", "IpcMode": "none", "ReadonlyRootfs": True, "CapDrop": ["ALL"],
        "Privileged": False, "PidsLimit": 128, "NanoCpus": 10**9, "Memory": held["MemorySwap"],
    }  # fmt: skip
    assert {name: held[name] for name in expected} == expected
    assert held["LogConfig"]["Type"] == "none"
    assert "no-new-privileges" in held["SecurityOpt"]
    assert not held["Binds"]
    assert not held["CapAdd"]
    assert not held["Devices"]
    assert container.attrs["Mounts"] == []
    assert set(container.attrs["NetworkSettings"]["Networks"]) <= {"none"}


def test_it_is_known_whose_container_it_is(container):
    _, pid, _ = container.labels["evalcell.owner"].split()
    assert int(pid) == os.getpid()
    assert container.attrs["Config"]["StopSignal"] == "SIGKILL"


def test_control_without_a_wall_the_same_questions_have_other_answers(tmp_path, monkeypatch):
    """So it is the wall that answers them."""
    monkeypatch.setenv("SECRET", "of the host")
    scope = {}
    exec(LOOK, scope)
    assert "SECRET" in eval("sorted(os.environ)", scope)
    assert eval("status()", scope)["Seccomp"] == "0"
    assert len(eval("[name for name in os.listdir('/proc') if name.isdigit()]", scope)) > 3
