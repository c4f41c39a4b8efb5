"""Chooses the sandbox for an evaluator, with the sentence that says why. Never a weaker one than the code needs."""

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from evalcell.errors import EvaluatorError, UsageError
from evalcell_sandboxes import Description, Import, Language, Network, sandbox

# Packages whose import name is not their own: what people import on the left, what they install on the right.
_PROVIDERS = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "google.protobuf": "protobuf",
    "jose": "python-jose",
    "jwt": "pyjwt",
    "Levenshtein": "levenshtein",
    "magic": "python-magic",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "pptx": "python-pptx",
    "rouge_score": "rouge-score",
    "sentence_transformers": "sentence-transformers",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "yaml": "pyyaml",
}


class Choice(Struct, frozen=True):
    """A sandbox by name, and why."""

    sandbox: str
    reason: str


def choose(
    description: Description,
    dependencies: Sequence[str],
    requested: str | None,
    network: Network = Network.NONE,
    beside: Callable[[str], str | None] = lambda _: None,
    language: Language = Language.PYTHON,
) -> Choice:
    """The sandbox that the code needs. `beside` names the file beside the evaluator that a module might be, if any.

    Raises:
        EvaluatorError: It imports what it does not declare, or what no sandbox could give it.
        UsageError: What was asked for, or granted, cannot be had together.
    """
    if language is Language.TYPESCRIPT:
        return _choose_for_typescript(description, dependencies, requested, network)
    if requested == "deno":
        raise UsageError("Sandbox 'deno' was asked for, and it speaks TypeScript, not Python: leave it out.")
    _check_imports(description.imports, dependencies, beside)
    dependencies = _applying(dependencies)
    if dependencies:
        needed = Choice("container", f"it depends on {_listed(dependencies)}, and packages run in a container")
    elif network is Network.FULL:
        needed = Choice("container", "it was granted the network, which only a container can have")
    else:
        needed = Choice("wasm", "it uses only the standard library, which runs in WebAssembly")
    if requested is None or requested == needed.sandbox:
        _check_present(description.imports, needed)
        return needed if requested is None else Choice(requested, f"sandbox {requested!r} was asked for")
    if requested == "wasm" and not dependencies:
        raise UsageError(f"Sandbox 'wasm' was asked for, but {needed.reason}: leave out one of the two.")
    if requested == "wasm":
        raise EvaluatorError(
            "import",
            f"Sandbox 'wasm' was asked for, but {needed.reason}: remove {_listed(dependencies)} from the dependencies.",
        )
    return Choice(requested, f"sandbox {requested!r} was asked for")


def _choose_for_typescript(
    description: Description, dependencies: Sequence[str], requested: str | None, network: Network
) -> Choice:
    """There is one sandbox for it, in which there are neither modules, nor packages, nor a network."""
    for found in description.imports:
        raise EvaluatorError(
            "import",
            f"Line {found.line} imports {found.module!r}, but an evaluator is one file, with nothing beside it but the "
            "language. Put the code into it; for types alone, write `import type`.",
        )
    if dependencies:
        raise EvaluatorError(
            "dependencies",
            f"It depends on {_listed(dependencies)}, and in TypeScript there are no packages: remove the dependencies, "
            "or write the evaluator in Python.",
        )
    if network is Network.FULL:
        raise UsageError("It was granted the network, which only a container can have, and TypeScript runs in 'deno'.")
    if requested not in (None, "deno"):
        raise UsageError(f"Sandbox {requested!r} was asked for, and TypeScript runs in 'deno' alone: leave it out.")
    return Choice("deno", "it is written in TypeScript, which runs in Deno")


def _applying(dependencies: Sequence[str]) -> tuple[str, ...]:
    """Those that are needed where code runs that needs none."""
    from evalcell_sandboxes.requirements import applying

    return applying(dependencies, str(sandbox("wasm").python)) if dependencies else ()


def check_python(requires: str | None, sandbox: str, version: str | None) -> None:
    """Refuses an evaluator whose `requires-python` the sandbox's Python does not meet."""
    if not requires or not version:
        return
    from packaging.specifiers import SpecifierSet

    if not SpecifierSet(requires).contains(version, prereleases=True):
        raise EvaluatorError(
            "metadata",
            f"requires-python is {requires!r}, but sandbox {sandbox!r} has Python {version}. "
            "Loosen it, or choose another sandbox.",
        )


def _check_imports(imports: Sequence[Import], dependencies: Sequence[str], beside: Callable[[str], str | None]) -> None:
    declared = _declared(dependencies)
    wanted = [found for found in imports if not found.standard and not found.optional]
    for found in wanted:
        if found.module.startswith("."):
            raise EvaluatorError(
                "import",
                f"Line {found.line} imports {found.module!r}, but an evaluator is one file, with nothing beside it.",
            )
    claimed = {provider(found.module) for found in wanted} & declared
    unclaimed = declared - claimed
    for found in wanted:
        package = provider(found.module)
        if package in declared or _may_provide(found.module, unclaimed):
            continue
        if (file := beside(found.module.partition(".")[0])) is not None:  # a package of that name is somebody else's
            raise EvaluatorError(
                "import",
                f"Line {found.line} imports {found.module!r}, and {file!r} lies beside the evaluator. An evaluator is "
                "one file, and what lies beside it cannot be imported, assets neither: put the code into it.",
            )
        raise EvaluatorError(
            "import",
            f"Line {found.line} imports {found.module!r}, which is not in the standard library and not declared. "
            f"{_how_to_declare(package, dependencies)}",
        )


def _declared(dependencies: Sequence[str]) -> set[str]:
    if not dependencies:
        return set()
    from packaging.requirements import Requirement

    return {_canonical(Requirement(text).name) for text in dependencies}


def _canonical(name: str) -> str:
    """The form in which two spellings of a package's name are the same (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def provider(module: str) -> str:
    """The package that one installs to import the module."""
    parts = module.split(".")
    for size in range(len(parts), 0, -1):
        if (known := _PROVIDERS.get(".".join(parts[:size]))) is not None:
            return known
    return _canonical(parts[0])


def _may_provide(module: str, packages: set[str]) -> bool:
    """Whether a declared package that no other import accounts for could be where this module comes from.

    Nobody but the package knows which modules it holds. A name that begins alike (`google-cloud-storage` for
    `google.cloud`), or one we have no opinion about, is given the benefit of the doubt: the import itself will tell.
    """
    known = set(_PROVIDERS.values())
    root = _canonical(module.partition(".")[0])
    return any(package.startswith(root) or package not in known for package in packages)


def _how_to_declare(package: str, dependencies: Sequence[str]) -> str:
    if dependencies:
        return f"Add it to the dependencies of the metadata block: {package!r}. Or grant it with --dep {package}"
    return (
        f"Grant it with --dep {package}, or declare it at the top of the file:\n"
        f'# /// script\n# dependencies = ["{package}"]\n# ///'
    )


def _check_present(imports: Sequence[Import], choice: Choice) -> None:
    if choice.sandbox != "wasm":
        return
    for found in imports:
        if found.standard and not found.present and not found.optional:
            raise EvaluatorError(
                "import",
                f"Line {found.line} imports {found.module!r}, which CPython for WebAssembly does not have. "
                "Use another module, or guard it with `try: ... except ImportError:`.",
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")  # noqa: PLR2004
