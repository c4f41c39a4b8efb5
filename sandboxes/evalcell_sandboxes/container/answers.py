"""Holds the answers of an engine to what is read of them, by us and by its client, before anybody reads it.

They are foreign: an engine may be broken, or something else may listen where one should. Each is looked at once, as it
arrives, so that nobody stumbles over it later, where it would look like a mistake of ours. What nobody reads may be
anything.
"""

import re
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from evalcell_sandboxes.container.failure import no_engine, senseless

if TYPE_CHECKING:
    from docker import APIClient
    from requests import Response

_FIRST_ERROR, _NOT_FOUND = 400, 404
_SHOWN_BYTES = 120
_T = TypeVar("_T")


class _Version(Struct, rename="pascal"):
    api_version: Annotated[str, Meta(pattern=r"\A[0-9]{1,4}\.[0-9]{1,4}\Z")]
    components: list[dict[str, Any]] | None = None


class _Info(Struct, rename="pascal"):
    # A version of thousands of digits is no number to Python.
    server_version: Annotated[str, Meta(max_length=200)] | None = None
    security_options: list[str] | None = None
    runtimes: dict[str, Any] | None = None
    default_runtime: str | None = None


class _ImageConfig(Struct, rename="pascal"):
    labels: dict[str, str] | None = None
    volumes: dict[str, Any] | None = None


class _Image(Struct, rename="pascal"):
    id: str
    config: _ImageConfig


class _ListedImage(Struct, rename="pascal"):
    id: str
    size: int
    created: float
    labels: dict[str, str] | None
    repo_tags: list[str] | None = None
    parent_id: str = ""


class _ListedContainer(Struct, rename="pascal"):
    id: str
    state: str
    created: float
    labels: dict[str, str] | None


class _ContainerConfig(Struct, rename="pascal"):
    tty: bool


class _Container(Struct, rename="pascal"):
    config: _ContainerConfig


class _Waited(Struct, rename="pascal"):
    status_code: int


class _Volumes(Struct, rename="pascal"):
    volumes: list[dict[str, Any]] | None


class _Network(Struct, rename="pascal"):
    name: str


class _Actor(Struct, rename="pascal"):
    attributes: dict[str, Any] | None = None


class Event(Struct, rename="pascal"):
    """Something that has happened to a container."""

    action: str
    actor: _Actor


class _Complaint(Struct):
    message: str


_VERSION = "GET /version"
_SHAPES: dict[str, Any] = {
    _VERSION: _Version,
    "GET /info": _Info,
    "GET /images/json": list[_ListedImage],
    "GET /images/.+/json": _Image,
    "GET /containers/json": list[_ListedContainer],
    "GET /containers/[^/]+/json": _Container,
    "POST /containers/[^/]+/wait": _Waited,
    "GET /volumes": _Volumes,
    "GET /networks": list[_Network],
    "POST /(containers/create|volumes/create|commit)|DELETE /images/.+": Any,  # only the client reads that
}
"""What is read of an answer, by what was asked. Streams are not among them: what they bring is looked at by `read`."""


def look_at_all(api: "APIClient", address: str) -> None:
    """Has a client look at every answer before it does anything with it.

    It then raises what `senseless` and `no_engine` give, whatever was asked.
    """

    def look(response: "Response", **_: Any) -> None:
        _look(response, address)

    api.hooks["response"].append(look)


def read(answer: object, shape: type[_T], address: str, asked: str) -> _T:
    """Something that an engine has said, in the shape that it should have.

    Raises:
        SandboxFault: It has another.
    """
    try:
        return msgspec.convert(answer, shape)
    except msgspec.ValidationError as error:
        raise senseless(address, asked, f"{answer!r:.{_SHOWN_BYTES}}", str(error)) from error


def _look(response: "Response", address: str) -> None:
    asked = _asked(response)
    try:
        _check(response, asked)
    except (ValueError, OverflowError, RecursionError, msgspec.ValidationError) as error:
        said = f"{response.status_code} {response.content[:_SHOWN_BYTES].decode(errors='replace')!r}"
        if asked == _VERSION:  # which every engine has, and which is the first that it is asked for
            raise no_engine(address, said) from error
        raise senseless(address, asked, said, str(error)) from error


def _asked(response: "Response") -> str:
    """The question, without the version of the language that it was asked in."""
    path = (response.request.path_url or "").partition("?")[0]
    return f"{response.request.method} {re.sub(r'^/v[0-9.]+(?=/)', '', path)}"


def _check(response: "Response", asked: str) -> None:
    if response.status_code >= _FIRST_ERROR:
        _check_complaint(response, asked)
        return
    shape = next((shape for pattern, shape in _SHAPES.items() if re.fullmatch(pattern, asked)), None)
    if shape is not None:
        msgspec.convert(response.json(), shape)


def _check_complaint(response: "Response", asked: str) -> None:
    """Engines complain in JSON, and sometimes in a line of text; never with a page for a browser."""
    if response.content.lstrip().startswith(b"<"):
        raise ValueError("a page for a browser")
    if asked == _VERSION and response.status_code == _NOT_FOUND:
        raise ValueError("no version")
    try:
        complaint = response.json()
    except ValueError:
        return
    msgspec.convert(complaint, _Complaint)
