"""`evalcell check`: says what an evaluator is and how it would run; with data, tries it on the first rows."""

import json
import time
from itertools import islice
from typing import Any

import click
import msgspec

from evalcell import datasets, records
from evalcell.binding import Binding
from evalcell.cli.options import Flags, dataset_options, evaluator_options
from evalcell.cli.screen import Screen
from evalcell.cli.text import printable, shown
from evalcell.configuration import DEFAULT, settings
from evalcell.datasets import Format, Row
from evalcell.engine.ready import RowBinder
from evalcell.plan import Plan
from evalcell.running import Ready, loaded, ready
from evalcell.settings import Settings
from evalcell_sandboxes import Isolation, Language, Limits, Progress, Sandbox, SandboxFault
from evalcell_sandboxes.site import ENVIRONMENT


@click.command(short_help="Say how an evaluator would run; with --data, try it.")
@evaluator_options
@dataset_options(
    help="Also bind and run the first rows of this dataset, and show what went in and came out.",
)
@click.option(
    "--rows", type=click.IntRange(1, 100), default=3, show_default=True, metavar="N", help="How many rows to try."
)
def check(
    flags: Flags,
    data: str | None,
    form: Format | None,
    rows: int,
) -> int:
    """Parse EVALUATOR without executing it and say what it needs: its parameters and what they are bound to, the
    sandbox and why, and every effective setting with where it came from.

    With --data, a dry run: the first rows are bound and run, and their inputs, prints and results are shown.
    """
    with (
        Screen(quiet=flags.as_json) as screen,
        ready(
            flags.evaluator(),
            flags.operator,
            started_ns=time.time_ns(),
            lanes=flags.operator.workers or 1,
            id_path=flags.id_path,
            progress=screen.progress,
            meanwhile=screen.get_ready,
        ) as prepared,
    ):
        report = describe(prepared) | _types(prepared, screen.progress)
        tries = _try(prepared, data, form, rows, screen.progress) if data is not None else []
        screen.stop()
    if flags.as_json:
        click.echo(json.dumps({**report, "tries": tries}))
    else:
        _show(report, tries)
    return 1 if any(record["status"] == "failed" for item in tries for record in item["records"]) else 0


def describe(prepared: Ready) -> dict[str, Any]:
    """Everything there is to say about an evaluator without running it."""
    plan, settings, choice = prepared.planned.plan, prepared.planned.settings, prepared.planned.choice
    return {
        "evaluator": plan.evaluator,
        "version": plan.version,
        "language": plan.program.language,
        "sandbox": {
            "name": choice.sandbox,
            "reason": choice.reason,
            "interpreter": prepared.planned.sandbox.interpreter,
            "python": prepared.planned.sandbox.python,
        },
        "parameters": [_parameter(binding, settings) for binding in plan.bindings],
        "output": settings.output.describe(),
        "dependencies": {
            "asked": list(settings.dependencies),
            "packages": _packages(plan.program.lock, prepared.planned.sandbox.python),
            "lock": prepared.planned.lock_source or None,
        },
        "assets": [{"name": asset.name, "sha256": asset.sha256} for asset in plan.program.assets],
        "settings": _settings(settings, plan),
        "hooks": [
            {"name": hook.name, "line": hook.line, "called": _called(hook.name, prepared.planned.sandbox, plan)}
            for hook in sorted(prepared.understood.description.hooks, key=lambda hook: hook.line)
            if hook.name != "evaluate"
        ],
    }


def _types(prepared: Ready, progress: Progress) -> dict[str, Any]:
    """What is to be said of its types: problems where there are some, and why there is nothing to say if so."""
    wall, program = prepared.planned.sandbox, prepared.planned.plan.program
    if program.language is Language.TYPESCRIPT:
        progress("Checking types")
    try:
        found = wall.check_types(program.source, prepared.planned.plan.confinement.limits)
    except SandboxFault as fault:
        return {"types": [], "types_unchecked": str(fault)}
    return {"types": msgspec.to_builtins(found), "types_unchecked": None}


def _called(hook: str, wall: Sandbox, plan: Plan) -> str | None:
    """When a hook is called and with what; None for one that is not."""
    match hook:
        case "fit":
            return f"before the rows, with the first {plan.fit_rows:,}"
        case "aggregate":
            return "after the rows, with every score"
        case "evaluate_batch" if wall.takes_batches and plan.confinement.isolation is Isolation.EVALUATOR:
            return "instead of evaluate, with many rows at a time"
    return None


def _packages(lock: str, python: str | None) -> list[str]:
    if not lock:
        return []
    from evalcell_sandboxes.container import locking

    return list(locking.packages(lock, python))


def _parameter(binding: Binding, settings: Settings) -> dict[str, Any]:
    source = settings.sources.get(f"parameters.{binding.parameter}", "its own name")
    if binding.literal is not None:
        return {"name": binding.parameter, "value": json.loads(binding.literal), "source": source}
    return {"name": binding.parameter, "path": binding.path, "required": not binding.optional, "source": source}


def _settings(settled: Settings, plan: Plan) -> dict[str, dict[str, Any]]:
    """Every setting with where it came from. Of what was granted there are only the names."""
    values: dict[str, Any] = {
        "wall": plan.sandbox,
        "dependencies": list(settled.dependencies),
        "env": list(settled.env),
        "network": settled.network,
        "isolation": settled.isolation,
        "output": settled.output.describe(),
        **({} if plan.fit_rows is None else {"fit_rows": plan.fit_rows}),
        **{f"limits.{name}": getattr(settled.limits, name) for name in Limits.__struct_fields__},
        **{name: getattr(settled.site, name) or None for name in ENVIRONMENT},
        "workers": settled.workers,
        "seed": settled.seed,
        "disk_bytes": settled.disk_bytes,
        "cache_dir": settled.cache_dir and str(settled.cache_dir),
        "data_dir": settled.data_dir and str(settled.data_dir),
    }
    shown = {name: {"value": value, "source": settled.sources.get(name, DEFAULT)} for name, value in values.items()}
    return {**shown, **_engine(settled, plan)}


def _engine(settled: Settings, plan: Plan) -> dict[str, dict[str, Any]]:
    """The engine that containers run on, also where nobody has said which."""
    if plan.sandbox != "container" or settled.site.engine:
        return {}
    from evalcell_sandboxes.container.addresses import find

    found = find(settled.site)
    return {"engine": {"value": found.url, "source": found.source}}


def _try(prepared: Ready, data: str, form: Format | None, count: int, progress: Progress) -> list[dict[str, Any]]:
    """Runs the first rows for real and gives what went in beside what came out."""
    binder = RowBinder(prepared.planned.plan)
    with datasets.opened(data, form) as dataset:
        _, every = datasets.with_first(dataset)
        with loaded(prepared, every, progress=progress) as found:
            rows = list(islice(datasets.only_rows(found), count))
            lines = [done for finished in prepared.engine.run(iter(rows)) for done in finished.rows]
    return [_tried(binder, row, text) for row, text in zip(rows, lines, strict=True)]


def _tried(binder: RowBinder, row: Row, lines: bytes) -> dict[str, Any]:
    ready = binder.bind(row)
    inputs = None if ready.error is not None else json.loads(ready.arguments)
    return {
        "row": row.index,
        "inputs": inputs,
        "records": [msgspec.to_builtins(records.decode(line)) for line in lines.splitlines()],
    }


def _show(report: dict[str, Any], tries: list[dict[str, Any]]) -> None:
    from rich.console import Console

    console = Console(highlight=False, emoji=False, soft_wrap=True)
    sandbox = report["sandbox"]
    console.print(f"[bold]{report['evaluator']}[/bold] {report['version']}", markup=True)
    console.print(f"  sandbox     {sandbox['name']} ({sandbox['interpreter']}): {sandbox['reason']}", markup=False)
    for parameter in report["parameters"]:
        console.print(f"  parameter   {_bound(parameter)}", markup=False)
    _show_dependencies(console, report["dependencies"])
    for asset in report["assets"]:
        console.print(f"  asset       {shown(asset['name'])}  (sha256 {asset['sha256'][:16]})", markup=False)
    for name, setting in report["settings"].items():
        console.print(f"  {name:<25} {_value(name, setting['value'])}  ({setting['source']})", markup=False)
    for hook in report["hooks"]:
        console.print(f"  hook        {_hook(hook)}", markup=False)
    _show_types(console, report)
    for item in tries:
        _show_try(console, item)


def _show_types(console: Any, report: dict[str, Any]) -> None:
    """Warnings all: types do not change what runs."""
    for problem in report["types"]:
        where = f"line {problem['line']}, column {problem['column']}"
        console.print(f"  types       {where}: {printable(problem['message'])}  ({problem['code']})", markup=False)
    if report["types_unchecked"]:
        console.print(f"  types       {printable(report['types_unchecked'])}", markup=False)


def _value(name: str, value: Any) -> str:
    """A setting's value, or what holds where nobody has said anything."""
    if value is None or value == []:
        return next(said.otherwise for each, _, said in settings() if each == name)
    return shown(", ".join(value) if isinstance(value, list) else value)


def _show_dependencies(console: Any, dependencies: dict[str, Any]) -> None:
    if not dependencies["packages"]:
        return
    console.print(f"  depends on  {', '.join(dependencies['asked'])}", markup=False)
    console.print(f"  packages    {', '.join(dependencies['packages'])}  (lock {dependencies['lock']})", markup=False)


_NOT_CALLED = "not called: it is in a container or in Deno, with --isolation evaluator"


def _hook(hook: dict[str, Any]) -> str:
    called = f"called {hook['called']}" if hook["called"] else _NOT_CALLED
    return f"{hook['name']} (line {hook['line']}): {called}"


def _bound(parameter: dict[str, Any]) -> str:
    if "path" not in parameter:
        return f"{parameter['name']} = {shown(parameter['value'])}  ({parameter['source']})"
    optional = "" if parameter["required"] else ", or its default"
    return f"{parameter['name']} <- {shown(parameter['path'])}{optional}  ({parameter['source']})"


def _show_try(console: Any, item: dict[str, Any]) -> None:
    console.print(f"\n[bold]row {item['row']}[/bold]")
    for name, value in (item["inputs"] or {}).items():
        console.print(f"  {name} = {shown(value)}", markup=False)
    for record in item["records"]:
        error = record["error"]
        if error is not None:
            console.print(f"  {record['status']}: {error['kind']}: {shown(error['message'])}", markup=False)
            if error["traceback"]:
                console.print(printable(error["traceback"].rstrip(), lines=True), markup=False)
        else:
            kept = {
                key: record[key]
                for key in ("score", "label", "passed", "explanation", "metadata")
                if record[key] is not None
            }
            console.print(f"  {record['status']}: {shown(record['name'])} {shown(kept)}", markup=False)
    first = item["records"][0]
    for stream in ("stdout", "stderr"):
        if first[stream]:
            console.print(f"  {stream}: {shown(first[stream])}", markup=False)
