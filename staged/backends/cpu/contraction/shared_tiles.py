"""Register tiles as functions that the kernels of a program share.

A tile is one inline function, with sizes and strides as arguments. If the loop is long, all kernels call one function
that is not inline. If the loop is short, each kernel has a function in which sizes and strides are numbers.

Tested by `tests/backends/host/test_contraction_matmul.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from staged.backends.cpu.contraction.product_tile import ProductTile
from staged.backends.cpu.contraction.spec import Parameter
from staged.backends.cpu.contraction.tile import declared
from staged.code.support.library import Snippet
from staged.code.writer import Writer

NOINLINE = "static __attribute__((noinline)) void"


class SharedTile(Protocol):
    """A tile whose function kernels share."""

    @property
    def name(self) -> str:
        """The name of the function."""

    @property
    def shape(self) -> str:
        """The sizes of the tile, for names."""

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters of the function."""

    @property
    def inline(self) -> str:
        """The name of the inline function."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The first arguments of the inline function, in front of those for `parameters`."""

    @property
    def snippet(self) -> Snippet:
        """The inline function."""


class TileCalls:
    """The calls of tiles by one kernel, and the functions that they need."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.functions: list[tuple[str, Snippet]] = []
        """Functions that kernels share, each with how a call begins."""
        self.own: dict[str, str] = {}
        """The functions of this kernel alone, by name."""

    @property
    def text(self) -> str:
        """The functions of this kernel alone."""
        return "\n".join([*self.own.values(), ""]) if self.own else ""

    def call(
        self,
        tile: SharedTile,
        is_shared: bool,
        arguments: Mapping[str, str],
        smaller: SharedTile | None = None,
        is_large: str = "",
    ) -> str:
        """The statement that computes a tile; `arguments` are in the order of the function's parameters.

        If a tile may be a smaller one, `is_large` is the condition in C under which it is not.
        """
        assert list(arguments) == [name for _, name in tile.parameters], "a tile needs all arguments in their order"
        fixed = (name for name, text in arguments.items() if text.isdigit() or text in ("true", "false"))
        numbers = {} if is_shared else {name: arguments[name] for name in fixed}
        functions = [
            self._shared(each) if is_shared else self._own(each, numbers)
            for each in (tile, smaller)
            if each is not None
        ]
        function = f"({is_large} ? {' : '.join(functions)})" if smaller is not None else functions[0]
        return f"{function}({', '.join(text for name, text in arguments.items() if name not in numbers)});"

    def _shared(self, tile: SharedTile) -> str:
        """The name of the function that kernels share."""
        self.functions += [(tile.name, tile.snippet), (tile.name, shared_function(tile))]
        return tile.name

    def _own(self, tile: SharedTile, numbers: Mapping[str, str]) -> str:
        """The name of this kernel's function, in which these arguments are numbers."""
        name = f"{self.kernel}_tile_{tile.shape}"
        self.functions.append((f"{tile.inline}(", tile.snippet))
        text = _function(name, tile, numbers).text
        assert self.own.setdefault(name, text) == text, "the calls of a tile have the same numbers"
        return name


def shared_function(tile: SharedTile) -> Snippet:
    """The function of a tile that kernels share."""
    return _function(tile.name, tile, {})


def tiles_function(tile: ProductTile) -> Snippet:
    """The function of tiles below one another, to which tables of sizes point."""
    t, parameters = Writer(), [parameter for parameter in tile.parameters if parameter[1] != "chain"]
    parameters = [*parameters[:3], ("int64_t ", "a_tile"), *parameters[3:], ("int64_t ", "tiles")]
    with t.function(f"{NOINLINE} {tile.tiles}", map(declared, parameters)):
        with t.block("for (; tiles > 0; --tiles)"):
            t.statement(_inline_call(tile, {"chain": "steps"}))
            t.line("a += a_tile;")
            t.line(f"c += {tile.rows} * c_row;")
    return Snippet(tile.tiles, str(t))


def fixed_function(
    name: str, tile: SharedTile, constants: Mapping[str, object], table: str = "", numbers: Sequence[int] = ()
) -> Snippet:
    """A function with the parameters of the shared one, some of which are constants: numbers, and a `table` of them if
    there is one.
    """
    t, given = Writer(), {**constants, **({table: "places"} if table else {})}
    with t.function(f"{NOINLINE} {name}", map(declared, tile.parameters)):
        t.line(f"{', '.join(f'(void){each}' for each in given)};  // constants here")
        if table:
            type = next(type for type, each in tile.parameters if each == table).rstrip("* ")
            t.statement(f"static {type} places[] = {{{', '.join(map(str, numbers))}}};")
        t.statement(_inline_call(tile, given))
    return Snippet(name, str(t))


def _function(name: str, tile: SharedTile, numbers: Mapping[str, str]) -> Snippet:
    """A function that calls the inline one, with these numbers in place of parameters."""
    t = Writer()
    open_parameters = [parameter for parameter in tile.parameters if parameter[1] not in numbers]
    with t.function(f"{NOINLINE} {name}", map(declared, open_parameters)):
        t.statement(_inline_call(tile, numbers))
    return Snippet(name, str(t))


def _inline_call(tile: SharedTile, given: Mapping[str, object]) -> str:
    """The statement that calls the inline function with these arguments; others are passed on."""
    arguments = (*tile.sizes, *(given.get(name, name) for _, name in tile.parameters))
    return f"{tile.inline}({', '.join(map(str, arguments))});"
