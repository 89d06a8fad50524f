"""The command line of an example: a flag for each number of it, and where its program runs."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

import staged as st


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of every example: `--gpu` and `--show`."""
    parser.add_argument(
        "--gpu", action="store_true", help="run on the GPU (STAGED_CUDA=emulate: on the emulated device)"
    )
    parser.add_argument("--show", action="store_true", help="print the generated program and stop")


def read_flags(doc: str | None, **defaults: Any) -> argparse.Namespace:
    """The flags `--name` for each default, of its type, `--gpu`, and `--show`.

    A tuple is a choice, whose first element is the default; None is the default of a text.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, tuple):
            parser.add_argument(flag, choices=default, default=default[0])
        else:
            parser.add_argument(flag, type=type(default) if default is not None else str, default=default)
    add_flags(parser)
    return parser.parse_args()


def region(flags: argparse.Namespace) -> contextlib.AbstractContextManager[Any]:
    """A region of the GPU with `--gpu`: programs that are called in it run there."""
    return st.with_backend(st.GPU) if flags.gpu else contextlib.nullcontext()


def run(flags: argparse.Namespace, function: Any, *arguments: Any, **options: Any) -> Any:
    """The results of a staged function, in a region with `--gpu`; with `--show` its program is printed instead, and that is all."""
    with region(flags):
        if flags.show:
            print(function.stage(*arguments, **options).source)
            raise SystemExit
        return function(*arguments, **options)
