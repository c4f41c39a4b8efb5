"""Turns the errors of the engine and its client into ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from evalcell_sandboxes.errors import SandboxFault, SandboxUnavailable
from evalcell_sandboxes.site import ENVIRONMENT

_FULL = "no space left on device"
_NO_FILTER = "opening seccomp profile failed"


class EngineGone(SandboxUnavailable):
    """The engine does not answer. It may only be restarting."""

    def __init__(self, address: str, doing: str) -> None:
        super().__init__(
            "container", f"the engine at {address} does not answer, while {doing}. Start it, and run this again."
        )


def silent(address: str, seconds: float) -> SandboxUnavailable:
    """What listens there does not say a word."""
    return SandboxUnavailable(
        "container",
        f"what listens at {address} has not answered within {seconds:g} s. Restart the engine, or name another with "
        f"{ENVIRONMENT['engine']}.",
    )


def no_engine(address: str, said: str) -> SandboxUnavailable:
    """What listens there speaks, but not as an engine does."""
    return SandboxUnavailable(
        "container",
        f"something answers at {address} that is no container engine: asked for its version, it said {said}. Name an "
        f"engine with {ENVIRONMENT['engine']}.",
    )


def senseless(address: str, asked: str, said: str, why: str) -> SandboxFault:
    """An engine says what cannot be understood."""
    return SandboxFault(
        f"The container engine at {address} gave an answer that makes no sense: to {asked} it said {said} "
        f"({why[:200]}). Restart or update it, or name another with {ENVIRONMENT['engine']}."
    )


@contextmanager
def translated(address: str, doing: str) -> Iterator[None]:
    """Raises what goes wrong with an engine meanwhile as what it means to us. `doing` completes "while ...".

    Raises:
        SandboxUnavailable: The engine is not there, its disk is full, or an image is gone: trying again is no use.
        SandboxFault: Anything else that it could not do.
    """
    from docker.errors import APIError, DockerException, ImageNotFound, StreamParseError
    from requests.exceptions import ConnectionError as Disconnected
    from requests.exceptions import RequestException, SSLError

    try:
        yield
    except ImageNotFound as error:
        raise SandboxUnavailable(
            "container", f"an image that was there is gone, while {doing}. Run the command again to make it anew."
        ) from error
    except APIError as error:
        raise _of_engine(error.explanation or str(error), doing) from error
    except SSLError as error:
        raise _not_trusted(address, error) from error
    except (Disconnected, ConnectionError) as error:
        raise EngineGone(address, doing) from error
    except (DockerException, RequestException, StreamParseError, OSError) as error:
        if isinstance(error.__cause__, SSLError):
            raise _not_trusted(address, error.__cause__) from error
        if isinstance(error.__cause__, Disconnected | ConnectionError):  # of a client that was never connected
            raise EngineGone(address, doing) from error
        raise SandboxFault(f"The container engine failed while {doing}: {error}"[:1000]) from error


def _not_trusted(address: str, error: Exception) -> SandboxUnavailable:
    return SandboxUnavailable(
        "container",
        f"the engine at {address} and we do not trust each other: {error}"[:500]
        + ". Check its certificates, and those in DOCKER_CERT_PATH or in the docker context.",
    )


def _of_engine(explanation: str, doing: str) -> SandboxFault | SandboxUnavailable:
    if _FULL in explanation.lower():
        return SandboxUnavailable(
            "container",
            f"the engine's disk is full, while {doing}. Make room, for example with: evalcell layers prune",
        )
    if _NO_FILTER in explanation.lower():
        return SandboxUnavailable(
            "container",
            "Podman reads the list of allowed system calls from a file in evalcell's cache, and cannot: it runs on "
            "another machine, or as another user. Run evalcell beside it, or use Docker there.",
        )
    return SandboxFault(f"The container engine failed while {doing}: {explanation}"[:1000])
