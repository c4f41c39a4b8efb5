"""Where sandboxes are made, as the operator has said it, and the few variables that a worker process is told of."""

import os
from pathlib import Path

from msgspec import Struct

from evalcell_sandboxes import caching


class Site(Struct, frozen=True):
    """What the operator says about this place. Empty is what he has not said.

    `engine` is the address of a container engine, or the name of a context of the docker command; `base` an image that
    containers stand on; `runtime` an OCI runtime that the engine knows.
    """

    engine: str = ""
    base: str = ""
    runtime: str = ""


ENVIRONMENT = {"engine": "DOCKER_HOST", "base": "EVALCELL_BASE_IMAGE", "runtime": "EVALCELL_RUNTIME"}
"""The variable that says each, where nothing else does."""

_VARIABLES = (*ENVIRONMENT.values(), "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
"""What leads to the engine. Nothing here is a secret: certificates are named, not held."""


def here() -> Site:
    """The site that the environment describes."""
    return Site(**{name: os.environ.get(variable, "") for name, variable in ENVIRONMENT.items()})


def configuration() -> dict[str, str]:
    """All that a process needs to know that inherits no environment and has no home."""
    return {
        caching.VARIABLE: str(caching.cache_path().absolute()),
        "DOCKER_CONFIG": str(docker_config()),
        **{name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def docker_config() -> Path:
    """Where the docker command keeps its settings, contexts among them; it need not be there."""
    configured = os.environ.get("DOCKER_CONFIG")
    return Path(configured or Path(os.path.expanduser("~")) / ".docker").absolute()  # noqa: PTH111 - never fails
