"""Names for a function that serves several kernels: the common parts of the names in these kernels.

    layer1_bn1_weight, layer2_bn3_weight -> layer_bn_weight

Tested by `tests/code/test_common_names.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import reduce

from staged.code.scopes import declared_within, renamed
from staged.code.tree import Function
from staged.code.uses import functions_called, mentioned
from staged.code.writer import Names
from staged.ir.nouns import NOUNS_ALONE

_NUMBERED = re.compile(r"^([a-z]+)\d+$")
_LETTERS = r"\1"


def common_words(names: Sequence[str], numbered: bool = False) -> list[str]:
    """The common parts of names, in order: `layer` and `bn` of `layer1_bn1` and `layer2_bn1`.

    With `numbered`, equal numbers count: `layer` and `bn1`.
    """
    if len({*names}) == 1:
        return names[0].split("_")
    words = [name.split("_") for name in names]
    kept = {word for word in words[0] if all(word in each for each in words)} if numbered else set[str]()
    return reduce(
        _shared, [[word if word in kept else _NUMBERED.sub(_LETTERS, word) for word in each] for each in words]
    )


def usual_words(names: Sequence[str]) -> list[str]:
    """The parts that three of four names share: `bn` of `layer1_bn1`, `layer1_bn2`, `bn1` and `norm1`."""
    words = [[_NUMBERED.sub(_LETTERS, word) for word in name.split("_")] for name in names]
    return [word for word in dict.fromkeys(words[0]) if 4 * sum(word in each for each in words) >= 3 * len(words)]


def _shared(first: Sequence[str], second: Sequence[str]) -> list[str]:
    blocks = SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    return [word for at, _, count in blocks for word in first[at : at + count]]


def with_common_names(function: Function, users: Sequence[Function]) -> Function:
    """A function for several users of its shape, the first of which has its names.

    A pointer without a common name is `in` or `out`. Other variables follow the parameter that they are called after.
    """
    columns = {names[0]: names for names in zip(*map(_names_of, users), strict=True)}
    found: dict[str, str] = {}
    used = {variable.text for variable in mentioned(function.body)} | {p.variable.text for p in function.parameters}
    kept = {name for name in used if len({*columns.get(name, ())}) == 1}
    names = Names()
    names.used |= functions_called(function.body) | kept
    pointers = {p.variable.text: "in" if p.variable.type.is_const else "out"
                for p in function.parameters if p.variable.type.is_pointer and p.variable.text in columns}  # fmt: skip
    for name in dict.fromkeys(_names_of(function)):
        if name in kept:
            continue
        words = common_words(columns[name]) if name in columns else []
        owner = next((old for old in found if old in pointers and name.startswith(f"{old}_")), None)
        if name in pointers and "_".join(words) in NOUNS_ALONE:
            hint = pointers[name]
        elif words and (words[0] == name.split("_")[0] or any(len(word) > 1 and not word.isdigit() for word in words)):
            hint = "_".join(words)
        elif owner is not None:
            hint = found[owner] + name.removeprefix(owner)
        else:
            hint = pointers.get(name, name)
        found[name] = names.fresh(hint)
    return replace(function, parameters=renamed(function.parameters, found), body=renamed(function.body, found))


def _names_of(function: Function) -> Iterator[str]:
    yield from (parameter.variable.text for parameter in function.parameters)
    yield from declared_within(function.body)
