"""What the operator has configured about this machine: the few variables that a worker process is told of."""

import os

from evalcell_sandboxes.caching import cache_path

_VARIABLES = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "EVALCELL_BASE_IMAGE")
"""Where the engine is and what containers stand on. Nothing here is a secret: certificates are named, not held."""


def configuration() -> dict[str, str]:
    """All of it, for a process that inherits no environment."""
    return {
        "EVALCELL_CACHE_DIR": str(cache_path().absolute()),
        **{name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }
