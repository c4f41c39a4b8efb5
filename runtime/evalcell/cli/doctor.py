"""`evalcell doctor`: says what is there, what is missing and how to get it, and tries every wall."""

from typing import TYPE_CHECKING

import click
import msgspec

from evalcell.cli.screen import Screen

if TYPE_CHECKING:
    from rich.console import Console

    from evalcell.doctor import Disk, Health, Wall

UNAVAILABLE = 4


@click.command(short_help="Say what is installed and missing, and try every sandbox.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def doctor(as_json: bool) -> int:  # noqa: FBT001 - a flag
    """Say which sandboxes can be used here and what the others lack, with the versions they rest on, and lean on
    each with code that tries to get out. Exits with 4 when one is missing or does not hold.
    """
    from evalcell.doctor import examine  # not needed by the other commands, which start faster without it

    with Screen(quiet=as_json) as screen:
        health = examine(screen.progress)
        screen.stop()
    if as_json:
        click.echo(msgspec.json.encode({**msgspec.to_builtins(health), "well": health.well}))
    else:
        _show(health)
    return 0 if health.well else UNAVAILABLE


def _show(health: "Health") -> None:
    from rich.console import Console

    from evalcell.doctor import purpose

    console = Console(highlight=False, emoji=False, soft_wrap=True)
    console.print(
        f"[bold]evalcell {health.evalcell}[/bold] on Python {health.python}, {health.machine}, {health.cores} cores"
    )
    for wall in health.walls:
        _show_wall(console, wall)
    console.print("\n[bold]directories[/bold]")
    for directory in health.directories:
        size = "not made yet" if directory.size_bytes is None else f"{directory.size_bytes / 1e6:,.1f} MB"
        console.print(f"  {directory.purpose:<8} {directory.path}  {size}", markup=False)
    _show_disk(console, health.disk)
    console.print("\n[bold]optional packages[/bold]")
    for package, version in health.optional.items():
        state = version or "not installed"
        console.print(f"  {package:<8} {state}  ({purpose(package)})", markup=False)


def _show_disk(console: "Console", disk: "Disk") -> None:
    console.print("\n[bold]kept because it was slow to make[/bold]")
    for kind, size in sorted(disk.bytes.items()):
        console.print(f"  {kind + 's':<10} {size / 1e6:>10,.1f} MB", markup=False)
    console.print(
        f"  {'in all':<10} {disk.total_bytes / 1e6:>10,.1f} MB of {disk.budget_bytes / 1e6:,.0f} MB  ({disk.source}; "
        "what was not used for longest goes first)",
        markup=False,
    )


def _show_wall(console: "Console", wall: "Wall") -> None:
    state = "[green]ready[/green]" if wall.well else "[red]not ready[/red]"
    interpreter = f", {wall.interpreter}" if wall.interpreter else ""
    remark = f" {wall.remark}" if wall.remark else ""
    console.print(f"\n[bold]{wall.name}[/bold] {state}{interpreter}{remark}")
    if wall.missing:
        console.print(f"  {wall.missing}", markup=False)
    if wall.slower_because:
        console.print(f"  slower than elsewhere: {wall.slower_because}", markup=False)
    for version in wall.versions:
        mark = "[green]ok[/green]" if version.safe else f"[red]{'too old' if version.found else 'missing'}[/red]"
        console.print(
            f"  {mark} {' '.join(filter(None, (version.name, version.found)))} (safe from {version.floor} on)"
        )
    for check in wall.checks:
        mark = "[green]ok[/green]" if check.holds else "[red]BROKEN[/red]"
        console.print(f"  {mark} {check.promise}")
        if check.found:
            console.print(f"     it came back with: {check.found}", markup=False)
