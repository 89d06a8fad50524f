"""Languages of artifacts: each compiles and loads programs of its texts.

`Artifact.language` names one: the module `staged/runtime/NAME` has the functions of a `Language`, or another package
has registered one.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, cast

from staged.base.artifact import Artifact
from staged.base.remote import Remote
from staged.runtime.options import CompileOptions
from staged.runtime.printing import Notes
from staged.source import Position


class LoadedProgram(Protocol):
    """A program that can be called."""

    artifact: Artifact
    notes: Notes
    """The notes of its calls so far."""

    def __call__(self, *values: Any) -> Sequence[Any]:
        """Run on one value per input, then one per Variable, which may change. Returns the output arrays."""

    def answer(self, calls: Mapping[int, Any]) -> None:
        """Let the program call these functions of Python's (`printing.PythonCall`), by number, if it calls some."""

    def traffic(self) -> tuple[int, int, float]:
        """The messages of all calls to other ranks, their bytes, and their time in seconds."""

    def short(
        self,
        kinds: Sequence[type | None],
        otherwise: Callable[..., Any],
        as_array: Callable[[Any], Any] | None = None,
        is_single: bool = False,
        known: Collection[int] = (),
    ) -> Callable[..., Any] | None:
        """A faster way in for calls with arrays that fit and numbers of these `kinds`, else `otherwise` is called; None
        without one.
        """


class ProgramOnDevices(LoadedProgram, Protocol):
    """A loaded program that accepts inputs or Variables that stay on a device."""

    def depart(self, values: Sequence[Any], departures: Any, where: Position | None) -> Sequence[Any]:
        """Run a program that leaves results on a device, in a call at `where`, which `departures` notes."""

    def memory_of(self, device: str) -> str:
        """The `Remote.device` of memory of a device that the program takes."""

    def place_on(self, device: str, nbytes: int) -> Remote:
        """New memory there. Raises: ProgramMemoryError if the device has no room."""

    def borrowed(self, device: str, address: int, nbytes: int, stream: int | None, alignment: int, owner: Any) -> Any:
        """Another library's array on the device, to be read after the work of `stream`. `owner` keeps it alive.

        It is copied if its address is not a multiple of `alignment` bytes.
        """


class Language(Protocol):
    """The operations on programs of one language; a module may implement it."""

    def load(self, artifact: Artifact, options: CompileOptions | None = None) -> LoadedProgram:
        """Compile a program, or find it in the cache, and load it.

        Raises: CompilerError, CacheError, DependencyError.
        """

    def files_beside(self, artifact: Artifact) -> dict[str, str]:
        """Further files of an exported folder, by path; non-empty for a device that is itself a program."""


_registered: dict[str, Language] = {}


def register_language(name: str, language: Language) -> None:
    """Add a language from outside of the package, or replace one."""
    _registered[name] = language


def language_of(artifact: Artifact) -> Language:
    """The `Language` of an artifact."""
    name = artifact.language
    if name in _registered:
        return _registered[name]
    module = f"{__package__}.{name}"
    assert importlib.util.find_spec(module) is not None, f"nothing loads programs in the language {name!r}"
    return cast(Language, importlib.import_module(module))
