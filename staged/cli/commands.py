"""The commands, with click. Commands whose result a script would use can print JSON."""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import sys
from typing import Any

import click
import numpy as np

import staged as st
from staged import system
from staged.cli.arguments import load_function, parse_all
from staged.cli.doctor import examine
from staged.cli.show import python_file_of, side_by_side
from staged.cli.support import rows, text_of

_ARGUMENTS = (
    """ARGUMENTS are numbers, strings, .npy files, types such as f32[64,784] (an array of zeros), or name=value."""
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(st.__version__, prog_name="staged")
def cli() -> None:
    """Write Python, get one readable C program."""


@cli.command(
    help=f"Run a staged function and print its results.\n\n{_ARGUMENTS}\n\n"
    "Example: staged run mlp.py:train x.npy y.npy epochs=3"
)
@click.argument("target", metavar="FILE[:FUNCTION]")
@click.argument("arguments", nargs=-1)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the results as JSON; what the program prints goes to stderr."
)
def run(target: str, arguments: tuple[str, ...], as_json: bool) -> None:
    with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
        function = load_function(target)
        positional, keywords = parse_all(function, arguments)
        result = function(*positional, **keywords)
    if as_json:
        click.echo(json.dumps(_plain(result), allow_nan=False))
    elif result is not None:
        click.echo(_pretty(result))


@cli.command(
    help=f"Show the generated C beside the Python.\n\n{_ARGUMENTS}\n\n"
    "Example: staged show mlp.py:step 'f32[64,784]' 'i32[64]'"
)
@click.argument("target", metavar="FILE[:FUNCTION]")
@click.argument("arguments", nargs=-1)
@click.option("--only", type=click.Choice(["both", "c", "ir", "memory"]), default="both", help="What to show.")
@click.option("--json", "as_json", is_flag=True, help="Source, IR, memory and sizes as JSON.")
def show(target: str, arguments: tuple[str, ...], only: str, as_json: bool) -> None:
    function = load_function(target)
    positional, keywords = parse_all(function, arguments)
    program = function.stage(*positional, **keywords)
    if as_json:
        report = {"name": program.name, "source": program.source, "ir": program.ir, "memory": str(program.memory)}
        click.echo(json.dumps({**report, "lines": program.report().lines, "kernels": program.report().kernels}))
    elif only == "c":
        click.echo(program.source, nl=False)
    elif only == "ir":
        click.echo(program.ir, nl=False)
    elif only == "memory":
        click.echo(program.memory)
    else:
        click.echo(side_by_side(program.source, python_file_of(function)))


@cli.command(
    help="Explain a program: its IR after each pass, its kernels and why no more was fused, schedules, "
    "buffers, copies.\n\n"
    f"{_ARGUMENTS}\n\nExample: staged explain mlp.py:step 'f32[64,784]' 'i32[64]'"
)
@click.argument("target", metavar="FILE[:FUNCTION]")
@click.argument("arguments", nargs=-1)
def explain(target: str, arguments: tuple[str, ...]) -> None:
    function = load_function(target)
    positional, keywords = parse_all(function, arguments)
    click.echo(function.stage(*positional, **keywords).explain(), nl=False)


@cli.command(
    help=f"Write a standalone folder: C, header, main, Makefile.\n\n{_ARGUMENTS}\n\n"
    "Example: staged export mlp.py:train 'f32[8000,784]' 'i32[8000]' 3 --out mnist/"
)
@click.argument("target", metavar="FILE[:FUNCTION]")
@click.argument("arguments", nargs=-1)
@click.option("--out", required=True, type=click.Path(file_okay=False), help="The folder to write.")
@click.option(
    "--target",
    "machine",
    help="One machine: native, portable, x86-64-v3, x86-64-v4. The default is the function's target; without one the "
    "program chooses when it runs.",
)
@click.option("--overwrite", is_flag=True, help="Replace files that were edited after an earlier export.")
@click.option("--json", "as_json", is_flag=True, help="Print the written files as JSON.")
def export(
    target: str, arguments: tuple[str, ...], out: str, machine: str | None, overwrite: bool, as_json: bool
) -> None:
    function = load_function(target)
    positional, keywords = parse_all(function, arguments)
    try:
        files = function.stage(*positional, **keywords).export(out, target=machine, overwrite=overwrite)
    except OSError as error:
        raise click.ClickException(f"cannot write {out}: {error.strerror or error}") from error
    if as_json:
        click.echo(json.dumps([str(file) for file in files]))
    else:
        click.echo(f"wrote {', '.join(file.name for file in files)} to {out}; build with `make -C {out}`")


@cli.command(help="Say what this machine has, what is missing, and what to do.\n\nExample: staged doctor --json")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def doctor(as_json: bool) -> None:
    findings = examine()
    if as_json:
        click.echo(json.dumps([finding.as_dict() for finding in findings]))
        return
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark = click.style("found  ", fg="green") if finding.found else click.style("missing", fg="yellow")
        click.echo(f"{mark}  {finding.name:<{width}}  {finding.detail}")
        if finding.remedy:
            click.echo(f"{'':9}{'':<{width}}  to do: {finding.remedy}")


@cli.command(
    help="Say for which dtypes and transforms functions run, on which back ends.\n\n"
    "NAMES are functions, such as exp or nn.Linear; without one all are listed.\n\nExample: staged support cumsum"
)
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="The rows as JSON.")
def support(names: tuple[str, ...], as_json: bool) -> None:
    known = rows()
    chosen = [name.removeprefix("st.") for name in names] or list(known)
    for name in chosen:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"no function is called {name}{hint}")
    if as_json:
        click.echo(json.dumps({name: known[name].as_json() for name in chosen}))
    else:
        click.echo("\n".join(text_of(known[name]) for name in chosen))


@cli.command(help="Show the program cache, or clear it.\n\nExample: staged cache --clear")
@click.option("--clear", is_flag=True, help="Remove every cached program.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON.")
def cache(clear: bool, as_json: bool) -> None:
    removed = system.clear_cache() if clear else 0
    folder, entries, size = system.cache_summary()
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "programs": entries, "bytes": size, "removed": removed}))
        return
    if clear:
        click.echo(f"removed {removed} programs")
    click.echo(f"{folder}: {entries} programs, {size / 1e6:.1f} MB")


def _plain(result: Any) -> Any:
    """A result tree as JSON values. Non-finite numbers, which JSON lacks, become "nan", "inf" and "-inf"."""
    if isinstance(result, dict):
        return {str(key): _plain(value) for key, value in result.items()}
    if isinstance(result, list | tuple):
        return [_plain(value) for value in result]
    if isinstance(result, np.ndarray | np.generic):
        return _plain(result.tolist())
    if isinstance(result, float) and not math.isfinite(result):
        return str(result)
    return result


def _pretty(result: Any, indent: str = "") -> str:
    """A result tree for people: large arrays by type and range."""
    if isinstance(result, dict):
        return "\n".join(f"{indent}{key}: {_pretty(value, indent + '  ').lstrip()}" for key, value in result.items())
    if isinstance(result, list | tuple):
        return "\n".join(
            f"{indent}[{index}] {_pretty(value, indent + '  ').lstrip()}" for index, value in enumerate(result)
        )
    if isinstance(result, np.ndarray) and result.size > 20:
        return f"{indent}{result.dtype} {result.shape}, from {result.min():.6g} to {result.max():.6g}"
    return f"{indent}{result}"


def run_command_line() -> None:
    """Run the command line; errors of ours are printed without a traceback and exit with 1."""
    try:
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Abort:
        sys.exit(130)
    except st.StagedError as error:
        click.echo(f"{type(error).__module__.split('.')[0]}.{type(error).__name__}: {error}", err=True)
        sys.exit(1)
