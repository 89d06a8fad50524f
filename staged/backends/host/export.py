"""The standalone folder of a program: its text, a `main` that reads `.npy` files and flags, a Makefile, examples, a
README.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from staged.backends.host.standalone.arrays import arrays_header
from staged.backends.host.standalone.build import makefile, readme
from staged.backends.host.standalone.library import (
    VARIANTS,
    dispatch_source,
    example_c,
    example_python,
    guard,
    library_source,
    variant_source,
)
from staged.backends.host.standalone.main import main_source
from staged.backends.host.standalone.npy import npy_header
from staged.backends.host.standalone.weights import weights_files
from staged.base.artifact import Artifact
from staged.code.support.team import no_team_definitions


def export_files(
    artifact: Artifact,
    variants: Mapping[str, Artifact] | None = None,
    beside: Mapping[str, str] | None = None,
    device_text: str = "",
    besides: str = "nothing else",
) -> dict[str, str]:
    """Every file of the folder, by name.

    `variants` are the same program for other targets (those of `VARIANTS`), to choose from when it runs; `beside` are
    more files, of which those in C belong to the program; `device_text` is that of `main_source`, `besides` what it
    takes to build it besides a C compiler.
    """
    name = artifact.name
    wide = dict(variants or {})
    if wide:
        artifact, *others = with_teams([artifact, *wide.values()])
        wide = dict(zip(wide, others, strict=True))
        artifact = with_arena(artifact, max(each.arena_bytes for each in (artifact, *wide.values())))
    files = {f"{name}.c": guard(artifact) + artifact.source, f"{name}.h": artifact.header, **companions(artifact)}
    for target, each in wide.items():
        assert each.sites == artifact.sites, "errors of all variants are named by one table"
        suffix = VARIANTS[target].suffix
        files[f"{name}_{suffix}.c"] = variant_source(each, VARIANTS[target]).replace(
            f'#include "{name}_support.h"', f'#include "{name}_{suffix}_support.h"'
        )
        if each.support:
            files[f"{name}_{suffix}_support.h"] = each.support
    if wide:
        files[f"{name}_dispatch.c"] = dispatch_source(artifact)
    files |= beside or {}
    more = [name for name in beside or {} if name.endswith(".c")]
    files["main.c"] = main_source(artifact, device_text, many_threads=bool(wide))
    files["Makefile"] = makefile(artifact, list(wide), more, besides)
    files["README.md"] = readme(artifact, targets=list(wide), besides=besides)
    return files


def with_teams(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """The same program for several targets: all have teams of threads if one has, since their callers cannot tell."""
    model = next((each for each in artifacts if each.threads != 1), None)
    if model is None:
        return list(artifacts)
    return [
        replace(
            each,
            source=f"{each.source}\n{no_team_definitions(each.name)}",
            header=with_arena(model, each.arena_bytes).header,
            threads=0,
        )
        if each.threads == 1
        else each
        for each in artifacts
    ]


def companions(artifact: Artifact) -> dict[str, str]:
    """The files beside a program's text, header and `main` that do not depend on how it is built."""
    name = artifact.name
    examples = {f"{name}_example.c": example_c(artifact), f"{name}_example.py": example_python(artifact)}
    return {
        **({f"{name}_support.h": artifact.support} if artifact.support else {}),
        **({f"{name}_data.c": artifact.data} if artifact.data else {}),
        f"{name}_library.c": library_source(artifact),
        **weights_files(artifact),
        **(examples if all(parameter.device == "cpu" for parameter in artifact.parameters) else {}),
        f"{name}_npy.h": npy_header(name),
        f"{name}_arrays.h": arrays_header(artifact),
    }


def with_arena(artifact: Artifact, arena_bytes: int) -> Artifact:
    """The artifact with room for the largest of its variants."""
    line = f"#define {artifact.name.upper()}_ARENA_BYTES ((size_t)"
    before, now = f"{line}{artifact.arena_bytes})", f"{line}{arena_bytes})"
    assert artifact.header.count(before) == 1, "the header names the arena's size once"
    return replace(artifact, header=artifact.header.replace(before, now), arena_bytes=arena_bytes)
