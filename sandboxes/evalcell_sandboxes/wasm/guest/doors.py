"""Knocks once at every door that libc remembers: what it is handed there belongs to the instance, and to no row."""

import contextlib
import os
import socket
import time

_KNOCKS = (
    lambda: os.stat("/"),
    lambda: os.read(0, 1),
    lambda: os.write(1, b""),
    lambda: os.write(2, b""),
    lambda: socket.getaddrinfo("localhost", None),
    lambda: time.sleep(0),
)


def knock() -> None:
    """Has libc ask for directories, streams and the network before the module is executed."""
    for door in _KNOCKS:
        with contextlib.suppress(OSError):
            door()
