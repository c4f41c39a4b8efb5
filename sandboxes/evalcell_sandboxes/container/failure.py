"""Turns the errors of the engine and its client into ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from evalcell_sandboxes.errors import SandboxFault, SandboxUnavailable

_FULL = "no space left on device"


class EngineGone(SandboxUnavailable):
    """The engine does not answer. It may only be restarting."""

    def __init__(self, doing: str) -> None:
        from evalcell_sandboxes.container.engine import address

        super().__init__(
            "container", f"the engine at {address()} does not answer, while {doing}. Start it, and run this again."
        )


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raises what goes wrong with the engine meanwhile as what it means to us. `doing` completes "while ...".

    Raises:
        SandboxUnavailable: The engine is not there, its disk is full, or an image is gone: trying again is no use.
        SandboxFault: Anything else that it could not do.
    """
    from docker.errors import APIError, DockerException, ImageNotFound
    from requests.exceptions import ConnectionError as Disconnected
    from requests.exceptions import RequestException

    try:
        yield
    except ImageNotFound as error:
        raise SandboxUnavailable(
            "container", f"an image that was there is gone, while {doing}. Run the command again to make it anew."
        ) from error
    except APIError as error:
        raise _of_engine(error.explanation or str(error), doing) from error
    except (Disconnected, ConnectionError) as error:
        raise EngineGone(doing) from error
    except (DockerException, RequestException, OSError) as error:
        if isinstance(error.__cause__, Disconnected | ConnectionError):  # of a client that was never connected
            raise EngineGone(doing) from error
        raise SandboxFault(f"The container engine failed while {doing}: {error}"[:1000]) from error


def _of_engine(explanation: str, doing: str) -> SandboxFault | SandboxUnavailable:
    if _FULL in explanation.lower():
        return SandboxUnavailable(
            "container",
            f"the engine's disk is full, while {doing}. Make room, for example with: evalcell layers prune",
        )
    return SandboxFault(f"The container engine failed while {doing}: {explanation}"[:1000])
