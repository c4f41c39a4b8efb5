"""Where sandboxes are made, as the operator has said it, and the few variables that other processes are told of."""

import os
from pathlib import Path

from msgspec import Struct

from evalcell_sandboxes import caching


class Site(Struct, frozen=True):
    """What the operator says about this place. Empty is what he has not said.

    `engine` is the address of a container engine, or the name of a context of the docker command; `base` an image that
    containers stand on; `runtime` an OCI runtime that the engine knows. `withheld` names the variables that are granted
    to code: no other program that is started is told what they hold, unless it would not work without.
    """

    engine: str = ""
    base: str = ""
    runtime: str = ""
    withheld: tuple[str, ...] = ()


ENVIRONMENT = {"engine": "DOCKER_HOST", "base": "EVALCELL_BASE_IMAGE", "runtime": "EVALCELL_RUNTIME"}
"""The variable that says each, where nothing else does."""

_VARIABLES = (*ENVIRONMENT.values(), "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
"""What leads to the engine. Nothing here is a secret: certificates are named, not held."""


_FOR_OUR_OWN = frozenset(
    {
        *("HOME", "LANG", "PATH", "TMPDIR", "TEMP", "TMP"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "NIX_LD", "NIX_LD_LIBRARY_PATH"),
        *("PYTHONHOME", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONUSERBASE", "PYTHONNOUSERSITE"),
        *("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"),
    }
)


def bare() -> dict[str, str]:
    """The environment of a program that does work of ours: where programs, libraries and places are. The rest of the
    user's may hold secrets, which any process of the same user could then read.
    """
    return {name: value for name, value in os.environ.items() if name in _FOR_OUR_OWN}


def here() -> Site:
    """The site that the environment describes."""
    said = {name: os.environ.get(variable, "") for name, variable in ENVIRONMENT.items()}
    return Site(said["engine"], said["base"], said["runtime"])


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
