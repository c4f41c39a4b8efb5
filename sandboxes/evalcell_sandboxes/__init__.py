"""The walls of evalcell: a program and rows in, outcomes out. Knows nothing of scores."""

from evalcell_sandboxes.description import Block, Description, Hook, Import, Kind, Parameter, SyntaxProblem, TypeProblem
from evalcell_sandboxes.errors import DependencyProblem, SandboxError, SandboxFault, SandboxUnavailable
from evalcell_sandboxes.fake import FakeSandbox
from evalcell_sandboxes.outcome import Crashed, Exceeded, Failure, Invalid, Outcome, Raised, Returned, Usage
from evalcell_sandboxes.program import Asset, Confinement, Isolation, Language, Limits, Network, Program
from evalcell_sandboxes.registry import names, sandbox
from evalcell_sandboxes.sandbox import Progress, Raw, Sandbox, Session, silent
from evalcell_sandboxes.site import Site
from evalcell_sandboxes.versions import Version

__all__ = [
    "Asset",
    "Block",
    "Confinement",
    "Crashed",
    "DependencyProblem",
    "Description",
    "Exceeded",
    "Failure",
    "FakeSandbox",
    "Hook",
    "Import",
    "Invalid",
    "Isolation",
    "Kind",
    "Language",
    "Limits",
    "Network",
    "Outcome",
    "Parameter",
    "Program",
    "Progress",
    "Raised",
    "Raw",
    "Returned",
    "Sandbox",
    "SandboxError",
    "SandboxFault",
    "SandboxUnavailable",
    "Session",
    "Site",
    "SyntaxProblem",
    "TypeProblem",
    "Usage",
    "Version",
    "names",
    "sandbox",
    "silent",
]
