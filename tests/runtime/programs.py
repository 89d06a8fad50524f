"""Hand-written C programs in the shape that a back end writes, for the runtime's tests."""

from __future__ import annotations

from dataclasses import replace

from staged.base.artifact import Artifact, Parameter, Site
from staged.code.support.library import render
from staged.code.support.team import team_declarations, team_definitions

C_TYPES = {
    "f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t", "u8": "uint8_t", "u32": "uint32_t",
    "i8": "int8_t", "i16": "int16_t", "u16": "uint16_t", "u64": "uint64_t",
    "bool": "bool",
}  # fmt: skip
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Werror")


def given(field: str, dtype: str = "f32", shape: tuple[int | str, ...] = (), scalar: bool | None = None) -> Parameter:
    """An input: a number where it has no shape and nothing else is said."""
    return Parameter(field, field, dtype, shape, "input", shape == () if scalar is None else scalar)


def size(field: str) -> Parameter:
    """The size of a dimension."""
    return replace(given(field, "i64"), part="size")


def result(field: str, dtype: str = "f32", shape: tuple[int | str, ...] = ()) -> Parameter:
    return Parameter(field, field, dtype, shape, "output")


def variable(field: str, dtype: str = "f32", shape: tuple[int | str, ...] = ()) -> Parameter:
    return Parameter(field, field, dtype, shape, "variable")


def program(
    name: str,
    parameters: tuple[Parameter, ...],
    body: str,
    *,
    needs: tuple[str, ...] = (),
    before: str = "",
    arena_bytes: int = 0,
    threads: int = 1,
    sites: tuple[Site, ...] = (),
) -> Artifact:
    """A program whose entry runs `body`, which sees `args`, `arena` and `host`."""

    def field(parameter: Parameter) -> str:
        if parameter.role != "input":
            return f"    {C_TYPES[parameter.dtype]} *{parameter.field};"
        if parameter.scalar:
            return f"    {C_TYPES[parameter.dtype]} {parameter.field};"
        return f"    const {C_TYPES[parameter.dtype]} *{parameter.field};"

    with_team = "team" in needs
    _, declarations = render(["host"])
    fields = "\n".join(field(parameter) for parameter in parameters) or "    char nothing;"
    header = f"""\
#ifndef {name.upper()}_H
#define {name.upper()}_H
#include <stdbool.h>
#include <stdint.h>

{declarations}
enum {{ {name.upper()}_ARENA_BYTES = {arena_bytes} }};

typedef struct {name}_args {{
{fields}
}} {name}_args;

int {name}(const {name}_args *args, void *arena, st_host *host);
{team_declarations(name) if with_team else ""}#endif
"""
    top, support = render({"host", *needs})
    source = (
        "\n".join(dict.fromkeys(("#define _POSIX_C_SOURCE 200809L", *top)))
        + f"""
#include "{name}.h"

{support}
{team_definitions(name) if with_team else ""}{before}
int {name}(const {name}_args *args, void *arena, st_host *host) {{
    (void)args;
    (void)arena;
    (void)host;
{body}
    return ST_OK;
}}
"""
    )
    return Artifact(
        name=name,
        source=source,
        header=header,
        parameters=parameters,
        arena_bytes=arena_bytes,
        threads=threads,
        sites=sites,
    )
