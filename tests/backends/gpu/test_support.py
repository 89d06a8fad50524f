"""Support functions as data: what a text calls is what it declares, and a device gets what its kernels call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

import pytest

from staged.backends.cublas_cudnn import atomics, spelling
from staged.backends.cublas_cudnn.dialect import CUDA
from staged.backends.gpu import support, thread_support
from staged.backends.gpu.dialect import GpuDialect
from staged.backends.gpu.reductions import reduction_name
from staged.backends.gpu.support import device_functions
from staged.backends.opencl import dialect as opencl
from staged.backends.opencl.dialect import OPENCL
from staged.code.support.library import Snippet, SupportFunction, made_of, snippets
from staged.ir.declaration import DECLARED
from staged.ir.types import ALL_DTYPES

OURS = re.compile(r"\b(st_\w+|__builtin_sqrtf?)\(")


def own_snippets() -> Iterator[tuple[GpuDialect, Snippet]]:
    """The snippets that the devices have of their own."""
    shared = [*support._CHECKED, *support._FITS, "thread_index", "thread_place", *thread_support._READS]
    ops = [each for each in DECLARED.values() if each.kind == "reduction"]
    of_teams = [reduction_name(*each) for each in product(("warp", "block", "column"), ops, ALL_DTYPES)]
    of_teams += [reduction_name("wins", op, dtype) for op in ops if op.is_position for dtype in ALL_DTYPES]
    of_cuda = [*spelling._OWN, *of_teams, *atomics._ATOMICS]
    of_opencl = ["fail", "st_permutation", *opencl._ATOMICS]
    for dialect, names, find in ((CUDA, of_cuda, spelling.find_snippet), (OPENCL, of_opencl, opencl.find_snippet)):
        for name in [*shared, *names]:
            made = (
                support.checked_function(name, dialect) or thread_support.thread_function(name, dialect) or find(name)
            )
            assert made is not None and made.name == name
            yield dialect, made


def needed(snippet: Snippet, own: dict[str, Snippet]) -> Iterator[Snippet]:
    for name in snippet.needs:
        found = own.get(name) or snippets()[name]
        yield found
        yield from needed(found, own)


def check(snippet: Snippet, own: dict[str, Snippet]) -> None:
    known = {function.name for each in needed(snippet, own) for function in each.functions}
    texts = "".join(each.text for each in needed(snippet, own))
    for function in snippet.functions:
        assert set(OURS.findall(function.definition)) == set(function.calls), function.name
        for called in function.calls:
            there = called in known or f"{called}(" in texts or called.startswith("__builtin_")
            assert there, f"{function.name} calls {called}, which {snippet.name} does not need"
        known.add(function.name)


def test_what_a_function_of_the_host_calls_is_what_it_declares() -> None:
    made = [snippet for snippet in snippets().values() if snippet.functions]
    assert len(made) > 100
    for snippet in made:
        check(snippet, {})


@pytest.mark.parametrize("dialect", [CUDA, OPENCL], ids=["cuda", "opencl"])
def test_what_a_function_of_a_device_calls_is_what_it_declares(dialect: GpuDialect) -> None:
    own = {snippet.name: snippet for each, snippet in own_snippets() if each is dialect}
    assert len(own) > 20
    for snippet in own.values():
        check(snippet, own)


def test_an_undeclared_call_and_an_undeclared_need_are_found() -> None:
    definition = "(float x) {\n    return st_exp_f32(x);\n}\n"
    with pytest.raises(AssertionError, match="st_f"):
        check(made_of("f", SupportFunction("float", "st_f", definition)), {})
    with pytest.raises(AssertionError, match="which f does not need"):
        check(made_of("f", SupportFunction("float", "st_f", definition, ("st_exp_f32",))), {})


def test_a_device_gets_what_its_kernels_call_in_its_own_words() -> None:
    text = device_functions(["st_normal_f64"], ["st_normal_f64"], CUDA, spelling.find_snippet)
    heads = [line for line in text.splitlines() if line.startswith("static")]
    names = [re.split(r"[ (]", line)[4] for line in heads]
    assert names == [f"st_device_{name}" for name in ("philox4x32", "random_block", "unit_f64", "normal_f64")]
    assert "const double radius = sqrt(-2.0 * log(u));" in text
    assert device_functions(["st_normal_f64"], ["st_unit_f64"], CUDA, spelling.find_snippet).count("static") == 1
    assert device_functions(["st_normal_f64"], [], CUDA, spelling.find_snippet) == ""


def test_what_the_host_alone_has_is_refused() -> None:
    with pytest.raises(AssertionError, match="clock is the host's alone"):
        device_functions(["clock"], ["st_clock"], CUDA, spelling.find_snippet)
