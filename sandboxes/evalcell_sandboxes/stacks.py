"""How much stack a thread has, and threads that have plenty.

Code behind the WebAssembly wall runs on the stack of the thread that calls it. CPython guards its own recursion, but
reckons in another stack than the native one: only with some 100 MiB of native stack does its guard, and with it an
ordinary `RecursionError`, come first. Pages of a stack that are never touched cost nothing.
"""

import ctypes
import sys
import threading
from collections.abc import Callable

PLENTY_BYTES = 160 * 1024**2
_ASSUMED_BYTES = 512 * 1024


def start_with_plenty(target: Callable[[], None], name: str) -> threading.Thread:
    """Starts a thread that has all the stack a guest may want."""
    before = threading.stack_size(PLENTY_BYTES)
    try:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    return thread


def this_thread_bytes() -> int:
    """How large the stack of the calling thread is, or what every thread has at least where nobody can tell."""
    try:
        libc = ctypes.CDLL(None)
        libc.pthread_self.restype = ctypes.c_void_p
        this = ctypes.c_void_p(libc.pthread_self())
        if sys.platform == "darwin":
            libc.pthread_get_stacksize_np.restype = ctypes.c_size_t
            return int(libc.pthread_get_stacksize_np(this))
        attributes = ctypes.create_string_buffer(256)  # larger than any libc's pthread_attr_t
        if libc.pthread_getattr_np(this, attributes) != 0:
            return _ASSUMED_BYTES
        address, size = ctypes.c_void_p(), ctypes.c_size_t()
        libc.pthread_attr_getstack(attributes, ctypes.byref(address), ctypes.byref(size))
        libc.pthread_attr_destroy(attributes)
    except (OSError, AttributeError):
        return _ASSUMED_BYTES
    return int(size.value)
