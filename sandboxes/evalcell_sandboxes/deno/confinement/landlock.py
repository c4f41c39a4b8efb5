"""Landlock: the files that a process can open, and nothing else by the kinds of deed that the kernel knows.

What it does not know is left to the filter of system calls: to change modes, owners and times, and to ask for the
attributes of a file, which tells an attacker which files there are, how large and how old, and cannot be kept from him.
"""

import os
import stat
import struct

from . import kernel

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""On every machine."""
_AS_PLACE = 0o1000_0000  # O_PATH, which other systems have no name for
_ASK_VERSION, _BENEATH = 1, 1
_EXECUTE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 2, 1 << 3
_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All that can be done to files as each version knows it: those between know no more than the one before."""
_BIND_AND_CONNECT_TCP, _NETWORK_SINCE = 0b11, 4
_ABSTRACT_SOCKETS_AND_SIGNALS, _SCOPES_SINCE = 0b11, 6


def version() -> int:
    """Which one the kernel has.

    Raises:
        OSError: It has none, or the operator has it switched off, or a container's own filter hides it.
    """
    return kernel.call(_CREATE, None, 0, _ASK_VERSION)


def restrict(readable: list[str], executable: list[str]) -> None:
    """From now on, this process can open only these, and what is below them, to read; and execute only the latter.

    Signals and abstract sockets end where it ends; looking into another process does so in every version.
    """
    ruleset = _create(version())
    for path in readable:
        _allow(ruleset, path, _READ_FILE | _READ_DIRECTORY)
    for path in executable:
        _allow(ruleset, path, _READ_FILE | _EXECUTE)
    kernel.call(_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _create(known: int) -> int:
    attributes = [max(known_files for since, known_files in _FILES.items() if since <= known)]
    if known >= _NETWORK_SINCE:
        attributes.append(_BIND_AND_CONNECT_TCP)
    if known >= _SCOPES_SINCE:
        attributes.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    packed = struct.pack(f"={len(attributes)}Q", *attributes)
    return kernel.call(_CREATE, packed, len(packed), 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    beneath = os.open(path, _AS_PLACE | os.O_CLOEXEC)
    if not stat.S_ISDIR(os.fstat(beneath).st_mode):
        rights &= ~_READ_DIRECTORY  # which the kernel refuses of a file
    kernel.call(_ADD, ruleset, _BENEATH, struct.pack("=Qi", rights, beneath), 0)
    os.close(beneath)
