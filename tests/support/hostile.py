"""Code that does what it is told, against whoever runs it: behind the wall, and in the open as a control."""

import json
import os
import subprocess
import sys
import textwrap

MODULE = '''
import ctypes, gc, os, resource, signal, socket, stat, struct, subprocess, sys, threading, time

def victims():
    """Those who run this, which are all others there are, oldest first: process 1, the one that has loaded this, and
    the one, if any, that the memory is shared with. In the open the parent alone, and never the machine's."""
    if "OPEN" in os.environ: return [os.getppid()]
    return sorted({int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()})

def record(value, wall=0.0, cpu=0.0, memory=0):
    """What a process says of a row that is done."""
    report = b'{"value":%s}' % value
    return struct.pack("!BddQIII", 0, wall, cpu, memory, len(report), 0, 0) + report

def sockets(kind):
    """The descriptors of this process that are sockets of a kind."""
    for descriptor in range(3, 256):
        try:
            with socket.socket(fileno=os.dup(descriptor)) as found:
                if found.type == kind: yield descriptor
        except OSError: pass

def daemon(work):
    """Leaves a process that is nobody's child, and that no signal ends which can be ignored."""
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        for number in set(range(1, 65)) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}: signal.signal(number, signal.SIG_IGN)
        while True: work()

def fill():
    """Makes files until there is no room for another one."""
    made = 0
    try:
        while True:
            open(f"/tmp/{made}", "w").close()
            made += 1
    except OSError:
        return made
'''

LIVING = '''
import os, time

def living():
    """How many processes there are, but for those that are dead or that wait for others in the kernel."""
    for _ in range(20):
        processes = [name for name in os.listdir("/proc") if name.isdigit()]
        states = [open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[0] for name in processes]
        count = sum(state not in "ZD" for state in states)
        if count == 3: break
        time.sleep(0.01)  # one that waits may be on its way to that
    return count
'''

_EVALUATE = f"""
{LIVING}
def evaluate(output):
    return [6 * 7, os.listdir("/tmp"), living()] if output == "world" else attack()
"""

WORLD = [42, [], 3]
"""What an honest row finds: process 1, the one that has loaded the module, and itself; a keeper waits for it."""

_CONTROL = """
victim = os.fork()
if victim == 0:
    if os.fork() == 0:
        os.write(1, f"{attack()}\\n".encode())  # in one piece, beside what others say
        os._exit(0)
    while True: time.sleep(1)
ended, until = False, time.monotonic() + 0.4
while not ended and time.monotonic() < until:
    time.sleep(0.01)
    ended = os.waitpid(victim, os.WNOHANG | os.WUNTRACED) != (0, 0)
os.write(1, f"victim {'is gone' if ended else 'lives'}\\n".encode())
os.killpg(0, signal.SIGKILL)
"""


def rows_that(body: str, *, top: str = "") -> str:
    """An evaluator with rows that attack with the body, and with honest ones; `top` runs when it is loaded."""
    return f"{MODULE}{top}\n{_attack(body)}{_EVALUATE}"


_AS_EVER = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""Jobs in the background are started with interrupts ignored, and so would this be."""


def in_the_open(body: str) -> tuple[object, bool]:
    """What the attack gives where nothing is in its way, and whether its victim, its own parent, lives on."""
    done = subprocess.run(
        [sys.executable, "-c", f"{_AS_EVER}{MODULE}{_attack(body)}{_CONTROL}"],
        env={**os.environ, "OPEN": "1"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        start_new_session=True,  # all of which it ends at last
    )
    lines = done.stdout.splitlines()
    said = [line for line in lines if not line.startswith("victim")]
    return (json.loads(said[0].lower().replace("none", "null")) if said else None), "victim lives" in lines


def _attack(body: str) -> str:
    return "\ndef attack():\n" + textwrap.indent(body.strip("\n"), "    ") + "\n"
