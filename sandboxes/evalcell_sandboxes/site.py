"""What the operator has configured about this machine: the few variables that a worker process is told of."""

import os

from msgspec import Struct

from evalcell_sandboxes.caching import cache_dir

_VARIABLES = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "EVALCELL_BASE_IMAGE")
"""Where the engine is and what containers stand on. Nothing here is a secret: certificates are named, not held."""


class Site(Struct, frozen=True):
    """Where containers run and what they stand on. Empty where nothing was said."""

    engine: str = ""
    base: str = ""
    runtime: str = ""


ENVIRONMENT = {"engine": "DOCKER_HOST", "base": "EVALCELL_BASE_IMAGE", "runtime": "EVALCELL_RUNTIME"}


def configuration() -> dict[str, str]:
    """All of it, for a process that inherits no environment."""
    return {
        "EVALCELL_CACHE_DIR": str(cache_dir().absolute()),
        **{name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }
