"""Says what a source declares by parsing it: hooks, parameters, imports, the metadata block. Executes nothing."""

import ast
import json
import math
import sys
import tomllib

_HOOKS = frozenset({"evaluate", "fit", "aggregate", "evaluate_batch"})
_BLOCK_START = "# /// script"
_BLOCK_END = "# ///"
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def describe(source: str) -> str:
    """Gives `{"syntax_error": ...}`, or the hooks, imports and metadata of the source."""
    try:
        tree = ast.parse(source)
        compile(tree, "evaluator", "exec", dont_inherit=True)  # `return` outside a function is found only here
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return json.dumps({"syntax_error": _position(error)})
    return json.dumps(
        {
            "hooks": _last_definitions(tree),
            "imports": _Imports(tree).found,
            "block": _block(source),
            "python": ".".join(map(str, sys.version_info[:3])),
        }
    )


def _position(error: BaseException) -> dict:
    if isinstance(error, SyntaxError):
        return {
            "message": error.msg,
            "line": error.lineno,
            "column": error.offset,
            "text": (error.text or "")[:500].rstrip(),
        }
    if isinstance(error, ValueError):
        return {"message": str(error)[:500]}
    return {"message": "the source is nested too deeply or is too large to parse"}


def _last_definitions(tree: ast.Module) -> list:
    """The hooks defined at the top level: of two definitions, the later one is what would run."""
    found = {}
    for node in _top_level(tree.body):
        for hook in _defined(node):
            found[hook["name"]] = hook
    return [found[name] for name in sorted(found)]


def _defined(node) -> list:
    """The hooks that a statement defines. Where it is no function, nothing is known of the parameters."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in _HOOKS:
        return [_hook(node.name, node, _parameters(node.args))]
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        parameters = _parameters(node.value.args) if isinstance(node.value, ast.Lambda) else None
        return [_hook(name, node, parameters) for name in _targets(node)]
    names = []
    if isinstance(node, ast.ClassDef):
        names = [node.name]
    elif isinstance(node, ast.Import | ast.ImportFrom):
        names = [alias.asname or alias.name for alias in node.names]
    return [_hook(name, node, None) for name in names if name in _HOOKS]


def _top_level(body: list):
    """The module's statements, looking into `if` and `try` but not into functions and classes."""
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from _top_level(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            yield from _top_level(handler.body)


def _targets(node) -> list:
    """The hooks that an assignment names."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name) and target.id in _HOOKS]


def _hook(name: str, node, parameters) -> dict:
    is_async = isinstance(node, ast.AsyncFunctionDef)
    return {"name": name, "line": node.lineno, "is_async": is_async, "parameters": parameters}


def _parameters(args: ast.arguments) -> list:
    positional = [(arg, "positional_only") for arg in args.posonlyargs] + [(arg, "ordinary") for arg in args.args]
    defaults = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
    found = [_parameter(arg, kind, default) for (arg, kind), default in zip(positional, defaults, strict=True)]
    if args.vararg:
        found.append(_parameter(args.vararg, "variadic", None))
    found += [
        _parameter(arg, "keyword_only", default) for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    if args.kwarg:
        found.append(_parameter(args.kwarg, "any_keyword", None))
    return found


def _parameter(arg: ast.arg, kind: str, default: ast.expr | None) -> dict:
    return {"name": arg.arg, "kind": kind, "default": None if default is None else _text(default)}


def _text(node: ast.expr) -> str:
    try:
        return ast.unparse(node)[:200]
    except RecursionError:
        return "..."


class _Imports(ast.NodeVisitor):
    """Every module the source imports anywhere; `optional` where the source itself is ready for its absence."""

    def __init__(self, tree: ast.Module) -> None:
        self.found = []
        self._optional = 0
        self.visit(tree)

    def generic_visit(self, node) -> None:
        """Into statements only: expressions hold no imports, and may be nested deeper than can be walked."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                self.visit(child)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._add("." * node.level + (node.module or ""), node)

    def visit_Try(self, node: ast.Try) -> None:
        ready = any(_catches_import_error(handler) for handler in node.handlers)
        self._optional += ready
        for child in node.body:
            self.visit(child)
        self._optional -= ready
        for child in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(child)

    def visit_If(self, node: ast.If) -> None:
        for_types = _text(node.test).endswith("TYPE_CHECKING")
        self._optional += for_types
        for child in node.body:
            self.visit(child)
        self._optional -= for_types
        for child in node.orelse:
            self.visit(child)

    def _add(self, module: str, node: ast.stmt) -> None:
        root = module.partition(".")[0]
        known = root in sys.stdlib_module_names
        self.found.append(
            {
                "module": module,
                "line": node.lineno,
                "optional": bool(self._optional),
                "standard": known,
                "present": known and module in sys.modules,
            }
        )


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(name, ast.Name) and name.id in _IMPORT_ERRORS for name in names)


def _block(source: str) -> dict | None:
    """The inline metadata block (PEP 723) as `{"table": ...}` or `{"error": ..., "line": ...}`; None without one."""
    lines = source.split("\n")
    starts = [number for number, line in enumerate(lines) if line.rstrip() == _BLOCK_START]
    if not starts:
        return None
    if len(starts) > 1:
        return {"error": f"a second '{_BLOCK_START}' block", "line": starts[1] + 1}
    content = []
    for line in map(str.rstrip, lines[starts[0] + 1 :]):
        if not (line == "#" or line.startswith("# ")):
            break
        content.append(line)
    # The block ends at the *last* closing line of the run of comments, as PEP 723 has it.
    ends = [number for number, line in enumerate(content) if line.rstrip() == _BLOCK_END]
    if not ends:
        return {"error": f"the block has no closing '{_BLOCK_END}'", "line": starts[0] + 1}
    text = "\n".join(line[2:] for line in content[: ends[-1]])
    try:
        return {"table": _plain(tomllib.loads(text), "$"), "line": starts[0] + 1}
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        return {"error": f"not valid TOML: {error}"[:500], "line": starts[0] + 1}


def _plain(value, where: str):
    """TOML as JSON: dates become text, and so does `inf`, but only as a bound of the output, which reads it as such."""
    if isinstance(value, dict):
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, where) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        if where != "$.tool.evalcell.output.range":
            raise ValueError(f"{value} has no place at {where[2:]}")
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        raise ValueError(f"an integer of more than 64 bits has no place at {where[2:]}")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
