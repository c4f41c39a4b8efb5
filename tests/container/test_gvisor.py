"""With gVisor a row could speak for PID 1, which would be the end of every promise; so there it has a user of its own."""

import re
from contextlib import closing

import docker
import pytest
from boxed import ask, boxed, value

from evalcell_sandboxes import SandboxUnavailable, Site, sandbox, silent
from evalcell_sandboxes.container import bases
from evalcell_sandboxes.container.engine import Engine

REACH = """
import os, signal
def tried(what):
    try: return what() or "done"
    except OSError as error: return type(error).__name__
def reach(signals):
    found = {}
    for name in ("200", "201"):  # where PID 1 has the connection to the host
        found[name] = tried(lambda: os.close(os.open(f"/proc/1/fd/{name}", os.O_RDWR if name == "201" else os.O_RDONLY)))
    for number in signals:
        found[f"signal {number}"] = tried(lambda: os.kill(1, number))
    return found
"""
SPEAK = """
import ctypes
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # as PID 1 does it
os.dup2(0, 200), os.dup2(1, 201)
if os.fork() == 0:
    os.closerange(3, 300)
    print(reach([0]), flush=True)
    os._exit(0)
os.wait()
"""


def test_a_row_cannot_speak_for_process_1_nor_end_it(runsc_wall):
    source = REACH + "def evaluate(output): return [reach([0, 9, 15, 19]), os.getuid() > 0, os.getgroups()]\n"
    with boxed(runsc_wall, source) as session:
        reached, unprivileged, groups = value(*ask(session, "x"))
        assert set(reached.values()) == {"PermissionError"}, reached
        assert unprivileged
        assert groups == []
        assert len(value(*ask(session, "x"))) == 3, "and it goes on"


OPENED = """
import os, stat
def evaluate(output):
    found = []
    for process in os.listdir("/proc"):
        if not process.isdigit() or int(process) == os.getpid(): continue
        for name in os.listdir(f"/proc/{process}/fd"):
            path = f"/proc/{process}/fd/{name}"
            try: opened = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            except OSError: found.append("")
            else: found.append(os.readlink(path))
    return found
"""


def test_nothing_that_others_have_open_leads_anywhere(runsc_wall):
    """A row can list it, and open no more of it than the null device and its own print files: no socket, no pipe."""
    with boxed(runsc_wall, OPENED) as session:
        found = value(*ask(session, 1))
    assert found.count("") >= 5  # the connections of process 1 and of the process that rows are forked from
    assert {re.sub("[0-9a-f]{32}", "PRINTS", path) for path in found} == {"", "/dev/null", "/tmp/PRINTS (deleted)"}


def test_as_the_same_user_it_could(runsc_wall):
    """The control: the same attempts, in a container where PID 1 has no user of its own."""
    with closing(docker.DockerClient(base_url=runsc_wall.site.engine)) as client:
        said = client.containers.run(
            bases.packed_name(),
            ["python3", "-S", "-c", REACH + SPEAK],
            runtime="runsc",
            user="20000:20000",
            cap_drop=["ALL"],
            network_mode="none",
            security_opt=["no-new-privileges"],
            remove=True,
        )
    assert b"'201': 'done'" in said
    assert b"'signal 0': 'done'" in said


TWICE = """
def evaluate(output):
    global starter
    starter = os.getpid()
    return queued(), queued()
"""
QUEUE = """
import ctypes, os, signal
starter, libc = os.getpid(), ctypes.CDLL(None)
def queued():
    signal.pthread_sigmask(signal.SIG_BLOCK, [40])
    return sum(libc.sigqueue(starter, 40, 0) == 0 for _ in range(500))
def evaluate(output): return queued()
"""


def test_no_signal_waits_for_the_next_row(runsc_wall):
    with boxed(runsc_wall, QUEUE) as session:
        first, second = (value(*ask(session, "x")) for _ in range(2))
    assert 0 < first < 500, "as many as the kernel keeps"
    assert second == first


def test_signals_that_nobody_takes_fill_what_the_kernel_keeps(runsc_wall):
    """The control: the same, twice in one process."""
    with boxed(runsc_wall, QUEUE + TWICE) as session:
        first, second = value(*ask(session, "x"))
    assert first > second == 0


def test_what_it_was_found_out_on_decides_and_not_a_name(runsc_wall, usual_base):
    base = bases.current(Engine(runsc_wall.site))
    assert (base.own_kernel, base.exposed, base.keeps) == (True, True, False)
    assert (usual_base.own_kernel, usual_base.exposed) == (False, False)


def test_an_engine_that_does_not_know_the_runtime_names_those_it_knows(engine_address):
    reason = sandbox("container", Site(engine=engine_address, runtime="nope")).unavailable_reason()
    assert "knows no runtime 'nope'; it knows " in reason
    assert "runc" in reason


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        pytest.param({"filtered": False}, "does not hold containers to our list of allowed system calls", id="filter"),
        pytest.param({"writable": ["/tmp", "/run"]}, "rows could leave things in /tmp, /run", id="places"),
        pytest.param({"limited": False}, "does not hold containers to their limit of memory", id="memory"),
        pytest.param({"interfaces": ["lo", "eth0"]}, "gives containers a network that should have none", id="network"),
        pytest.param({"powerless": False}, "leaves containers with capabilities", id="capabilities"),
        pytest.param({"exposed": True}, "rows could speak for their supervisor", id="process-1-on-our-own-kernel"),
    ],
)
def test_an_engine_whose_walls_do_not_hold_is_refused(usual_engine, changed, complaint):
    told = {"filtered": True, "writable": ["/tmp"], "powerless": True, "exposed": False, "tells": True}
    told |= {"interfaces": ["lo"], "limited": True}
    inside = bases._Inside(python="3.12.1", machine="x86_64", libc="glibc 2.36")
    found = bases._Probed(image=inside, kernel=usual_engine.kernel, **{**told, **changed})
    with pytest.raises(SandboxUnavailable, match=complaint):
        bases._require_wall(usual_engine, found)


def test_an_engine_that_does_not_name_its_kernel_is_refused(usual_engine, usual_base):
    """Every container would seem to have a kernel of its own there, and PID 1 would be given power over it."""
    engine = Engine(usual_engine._site)
    engine.info = {name: value for name, value in usual_engine.info.items() if name != "KernelVersion"}
    with pytest.raises(SandboxUnavailable, match="does not say which kernel"):
        bases._probed(engine, usual_engine.client.images.get(usual_base.image), "probed")


@pytest.mark.parametrize("end", ["os._exit(0)", "os.abort()"])
def test_only_to_be_killed_shows_that_memory_is_limited(usual_engine, usual_base, monkeypatch, end):
    """A probe that comes to another end before it has taken any has shown nothing."""
    monkeypatch.setattr(bases, "_PROBE", bases._PROBE.partition("try:  # and now")[0] + end)
    with pytest.raises(SandboxUnavailable, match="their limit of memory"):
        bases._probed(usual_engine, usual_engine.client.images.get(usual_base.image), "probed")


@pytest.mark.parametrize(
    ("runtime", "complaint"),
    [
        ("runsc-unfiltered", "does not hold containers to our list of allowed system calls.*add --oci-seccomp"),
        ("runsc-unlimited", "does not hold containers to their limit of memory.*take --ignore-cgroups out"),
    ],
)
def test_a_runtime_that_does_less_than_it_is_told_is_refused(runsc_wall, runtime, complaint):
    wall = sandbox("container", Site(engine=runsc_wall.site.engine, runtime=runtime))
    with pytest.raises(SandboxUnavailable, match=complaint):
        wall.prepare(None, silent)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        pytest.param({"tmpfs": {"/tmp": "", "/mnt": "mode=1777"}}, "rows could leave things in .*/mnt", id="places"),
        pytest.param({"security_opt": ["seccomp=unconfined"]}, "our list of allowed system calls", id="filter"),
        pytest.param({"mem_limit": "1g", "memswap_limit": "1g"}, "their limit of memory", id="memory"),
    ],
)
def test_the_probe_sees_what_is_not_held(usual_engine, usual_base, monkeypatch, wrong, complaint):
    """In a container that an engine has made otherwise than it was told."""
    make = docker.APIClient.create_host_config
    monkeypatch.setattr(docker.APIClient, "create_host_config", lambda api, **told: make(api, **{**told, **wrong}))
    image = usual_engine.client.images.get(usual_base.image)
    with pytest.raises(SandboxUnavailable, match=complaint):
        bases._probed(usual_engine, image, "probed")
