"""A kernel's lines in errors are those of the file as it is, also where the program's text comes from the cache."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.call.program_cache import PACKAGE, find_artifact, store_artifact

KERNEL = """\
import staged as st
from staged import cuda


@st.gpu_func
def gather(x, places, out):
    i = cuda.global_index.x
    if i < len(out):
        out[i] = x[places[i]]  # the read


@st.function(target="portable")
def gathered(x, places):
    with st.with_backend(st.GPU, x, places):
        y = gather[1, 32](x, places, st.zeros(places.shape))
    return y
"""


def module(path: Path, text: str) -> Any:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_sites_are_those_of_the_new_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CACHE_DIR", str(tmp_path / "cache"))
    x, places = np.ones(5, np.float32), np.arange(3)
    first = module(tmp_path / "first.py", KERNEL).gathered.stage(x, places)
    second = module(tmp_path / "second.py", "# moved\n\n\n" + KERNEL).gathered.stage(x, places)
    store_artifact(first._traced.function, first._machine, False, first._artifact)
    found = find_artifact(second._traced.function, second._machine, False)
    assert found is not None and found.source == first.source
    (before,) = [site for site in first._artifact.sites if "the read" in site.text]
    (after,) = [site for site in found.sites if "the read" in site.text]
    assert (Path(before.file).name, Path(after.file).name) == ("first.py", "second.py")
    assert after.line == before.line + 3


def test_stored_programs_depend_on_every_source_file_of_the_package() -> None:
    assert PACKAGE == Path(st.__file__).parent
