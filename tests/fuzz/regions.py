"""Regions put around statements of a random program, drawn from a `random.Random`: which run of statements, which device.

They stand at any nesting: in loops, branches, recursive helpers and functions made on the spot, inside of one another, with
the host's regions inside of a GPU's. What a program means does not depend on them.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence

ONE_GPU = ("st.GPU", "st.GPU", "st.GPU", "st.CPU")
TWO_GPUS = ("st.GPU", "st.GPU", "st.GPU(1)", "st.GPU(1)", "st.CPU")
OPTIONS = ("graphs=False", "deterministic=False", "algorithms='timed'")


def with_regions(text: str, chance: random.Random, devices: Sequence[str] = ONE_GPU) -> str:
    """The program `text`, with at least one region of a GPU."""
    while True:
        writer = _Regions(chance, devices, chance.choice(OPTIONS) if chance.randrange(100) < 15 else "")
        tree = writer.visit(ast.parse(text))
        if writer.on_gpu:
            return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Regions(ast.NodeTransformer):
    """Puts regions into the bodies of functions and of what stands in them."""

    def __init__(self, chance: random.Random, devices: Sequence[str], option: str) -> None:
        self.chance = chance
        self.devices = devices
        self.option = option
        self.arrays: list[str] = []
        """The inputs that a region may name here: the parameters of the function around."""
        self.on_gpu = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if any("gpu_func" in ast.unparse(decorator) for decorator in node.decorator_list):
            return node
        around = self.arrays
        self.arrays = [argument.arg for argument in node.args.args if argument.arg not in ("n", "scale")]
        made = self.generic_visit(node)
        self.arrays = around
        return made

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        """A region that the program has anyway: kernels of the user's run in it alone."""
        self.on_gpu = True
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)  # inner statements first: regions inside of regions come of themselves
        if isinstance(node, ast.Module):
            return node
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list) and statements and not _is_elif(node, name):
                setattr(node, name, self.placed(statements))
        return node

    def placed(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """A body with regions around some runs of it."""
        found: list[ast.stmt] = []
        place = 0
        while place < len(statements):
            if self.chance.randrange(100) < 25:
                end = self.chance.randint(place + 1, len(statements))
                found.append(self.region(statements[place:end]))
                place = end
                continue
            found.append(statements[place])
            place += 1
        made = [name for statement in statements[-3:] if (name := _assigned(statement))]
        if made and self.chance.randrange(100) < 8 and not isinstance(statements[-1], ast.Return):
            name = self.chance.choice(made)
            found += ast.parse(f"{name} = st.to({name}, {self.chance.choice(self.devices)})").body
        return found

    def region(self, statements: list[ast.stmt]) -> ast.stmt:
        """A region of one of the devices around these statements."""
        device = self.chance.choice(self.devices)
        given = [device]
        if self.arrays and self.chance.randrange(100) < 30:
            given += self.chance.sample(self.arrays, 1)
        if device != "st.CPU":
            self.on_gpu = True
            given += [self.option] if self.option else []
        call = ast.parse(f"st.with_backend({', '.join(given)})", mode="eval").body
        return ast.With(items=[ast.withitem(context_expr=call)], body=statements)


def _is_elif(node: ast.AST, name: str) -> bool:
    """Whether the body of this name is another condition of the same `if`."""
    return isinstance(node, ast.If) and name == "orelse" and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)


def _assigned(statement: ast.stmt) -> str:
    """The name of a new float array that the statement binds; empty where it binds none."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) if name[0] == "v" and name[1:].isdigit():
            return name
    return ""
