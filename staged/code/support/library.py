"""The registry of support snippets: pieces of C that a program carries when it uses them.

A module of this folder joins by having a `SNIPPETS` sequence; nothing else needs an edit.

Tested by `tests/runtime/test_support.py`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class SupportFunction:
    """A C function in parts, so that another language can have it too, under other names."""

    result: str
    name: str
    definition: str
    """The text behind the name: parameters and body."""
    calls: tuple[str, ...] = ()
    """The functions that it calls: ours (`st_exp_f32`) and the compiler's (`__builtin_sqrt`)."""
    comment: str = ""
    head: str = "static inline "
    """The text before the result's type."""
    is_overloaded: bool = False
    """True if other functions have its name, for other types."""

    def spelled(self, head: str, name_of: Callable[[str], str]) -> str:
        """The text with this head, and the functions' names as `name_of` has them."""
        definition = self.definition
        for called in self.calls:
            definition = definition.replace(f"{called}(", f"{name_of(called)}(")
        return f"{self.comment}{head}{self.result} {name_of(self.name)}{definition}"

    @property
    def text(self) -> str:
        """The function of the host."""
        return self.spelled(self.head, str)


@dataclass(frozen=True, slots=True)
class Snippet:
    """C text with a name.

    `needs` are names of snippets that must stand before it, `includes` whole preprocessor lines that must stand at the
    top of the file (`#include <math.h>`, `#define _POSIX_C_SOURCE 200809L`). `functions` are those of the text, where
    devices have it too.
    """

    name: str
    text: str
    needs: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    functions: tuple[SupportFunction, ...] = ()


def made_of(
    name: str, *functions: SupportFunction, needs: tuple[str, ...] = (), includes: tuple[str, ...] = ()
) -> Snippet:
    """The snippet that consists of these functions."""
    return Snippet(name, "\n".join(function.text for function in functions), needs, includes, functions)


def headers(*names: str) -> tuple[str, ...]:
    """The lines that include these headers of C."""
    return tuple(f"#include <{name}.h>" for name in names)


@cache
def snippets() -> dict[str, Snippet]:
    """Every snippet by name: modules in alphabetical order, within a module as written there."""
    found: dict[str, Snippet] = {}
    package = __name__.rpartition(".")[0]
    folder = importlib.import_module(package)
    for name in sorted(module.name for module in pkgutil.iter_modules(folder.__path__)):
        module = importlib.import_module(f"{package}.{name}")
        for snippet in getattr(module, "SNIPPETS", ()):
            assert snippet.name not in found, f"two support snippets are called {snippet.name}"
            found[snippet.name] = snippet
    return found


def render(names: Iterable[str]) -> tuple[tuple[str, ...], str]:
    """(top lines, text) of the named snippets and all they need."""
    ordered = in_order(names)
    return top_lines(ordered), text_of(ordered)


def text_of(ordered: Iterable[Snippet]) -> str:
    """The text of snippets, with a line between two."""
    return "\n".join(snippet.text.strip("\n") + "\n" for snippet in ordered)


def in_order(
    names: Iterable[str], form: Callable[[Snippet, str], Snippet] = lambda snippet, user: snippet
) -> tuple[Snippet, ...]:
    """The named snippets and all they need, each in the `form` of a dialect, which is also given the first of `names`
    that needs it.

    The order depends on the registry alone, not on that of `names`: each snippet stands after those it needs.
    """
    table = snippets()
    ordered: dict[str, Snippet] = {}

    def add(name: str, users: tuple[str, ...]) -> None:
        assert name in table, f"no support snippet is called {name}, which {users[-1] if users else 'a back end'} needs"
        assert name not in users, f"support snippets need each other: {' -> '.join((*users, name))}"
        if name in ordered:
            return
        snippet = form(table[name], (*users, name)[0])
        for needed in snippet.needs:
            add(needed, (*users, name))
        ordered[name] = snippet

    position = {name: index for index, name in enumerate(table)}
    for name in sorted(set(names), key=lambda name: position.get(name, -1)):
        add(name, ())
    return tuple(ordered.values())


def top_lines(chosen: Iterable[Snippet]) -> tuple[str, ...]:
    """The preprocessor lines that these snippets need, each once: definitions first, since feature macros only work in
    front of includes.
    """
    lines = {line for snippet in chosen for line in snippet.includes}
    return tuple(sorted(lines, key=lambda line: (not line.startswith("#define"), line)))
