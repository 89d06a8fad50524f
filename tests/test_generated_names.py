"""The names and comments of generated programs: a reader finds the variables of the Python program, and each kernel
says what it computes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.ir.nouns import NOUNS_ALONE
from staged.kernels.words import ROLES
from tests.generated_names import PROGRAMS, floats

FILE = "generated_names.py"
LINES = (Path(__file__).parent / FILE).read_text().splitlines()
KERNEL = re.compile(
    r"^(?:static void|extern \"C\" __global__ void(?: __launch_bounds__\(\d+\))?) (\w+)\(", re.MULTILINE
)

FUNCTION = re.compile(r"^(?:static |inline |int )[^;{}=]*?(\w+)\(([^{};]*)\)\s*\{(.*?)^\}", re.MULTILINE | re.DOTALL)
STRUCT = re.compile(r"^typedef struct(?: \w+)? \{(.*?)^\} (\w+);", re.MULTILINE | re.DOTALL)
DECLARED = re.compile(
    r"\s*(?:const |static )*(?!return|else|goto|case|typedef|unsigned|void)[a-z]\w* \**(?:const |restrict )*(\w+)"
    r"(?:\[.*?\])?(?:\s*=|,|$)"
)

HELPER = re.compile(r"_(product|part)(_|$)")
"""Functions that a kernel calls."""


@cache
def program_of(name: str) -> Any:
    function, arguments = PROGRAMS[name].make()
    return function.stage(*arguments)


def source_of(name: str) -> str:
    return str(program_of(name).source)


def code_of(source: str) -> str:
    """The text without its comments."""
    return re.sub(r"//.*", "", source)


def sections(source: str) -> Iterator[tuple[str, str]]:
    """(title, text) of each section."""
    parts = re.split(r"^// ---- (.*?) -+$", source, flags=re.MULTILINE)
    yield from zip(parts[1::2], parts[2::2], strict=True)


def kernels(source: str) -> Iterator[tuple[str, list[str], str]]:
    """(name, comments, text) of each kernel."""
    for title, text in sections(source):
        if title not in ("initial values", "forward", "backward", "update", "kernels"):
            continue
        for block in text.split("\n\n"):
            comments = [line for line in block.splitlines() if line.startswith("//")]
            found = KERNEL.search(block)
            if found and not HELPER.search(found[1]):
                yield found[1], comments, block


def declared(source: str) -> Iterator[tuple[str, str]]:
    """(function or struct, name) of the arrays and numbers that C declares; indices of one letter do not count."""
    code = re.sub(r'"(?:\\.|[^"])*"', '""', code_of(source))
    for fields, struct in STRUCT.findall(code):
        names = re.findall(r"(\w+)(?:\[.*?\])?\s*[,;]", fields)
        yield from ((struct, name) for name in names)
    for function, parameters, body in FUNCTION.findall(code):
        lines = [*parameters.split(","), *re.split(r"[;\n{(]", body)]
        names = [found[1] for line in lines if (found := DECLARED.match(line))]
        yield from ((function, name) for name in dict.fromkeys(names) if len(name) > 1)


def bare_names(source: str, users: str) -> list[tuple[str, str]]:
    """The declared names that are a noun of the library alone, and no variable of the user's Python."""
    nodes = [*ast.walk(ast.parse(users))]
    nouns = (NOUNS_ALONE | ROLES) - {each.id for each in nodes if isinstance(each, ast.Name)}
    nouns -= {each.arg for each in nodes if isinstance(each, ast.arg)}
    return [each for each in declared(source) if re.sub(r"(_?\d+)*_?$", "", each[1]) in nouns]


def value_of(line: str) -> tuple[list[str], int]:
    """The variables that a line of Python assigns a value to, and the column at which the value begins."""
    try:
        (statement,) = ast.parse(line.strip()).body
    except (SyntaxError, ValueError):
        return [], 0
    if not isinstance(statement, ast.Assign):
        return [], 0
    names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return names, statement.value.col_offset + len(line) - len(line.lstrip())


@pytest.mark.parametrize("name", PROGRAMS)
def test_variables_of_the_user_keep_their_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CUDA", "emulate")
    code = code_of(source_of(name))
    missing = [each for each in PROGRAMS[name].names.split() if not re.search(rf"\b{each}\b", code)]
    assert not missing, code


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_kernel_cites_the_lines_whose_values_it_computes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of a line is in the text of the kernel, unless the kernel computes a part of the line's value."""
    monkeypatch.setenv("STAGED_CUDA", "emulate")
    texts = {kernel: (comments, text) for kernel, comments, text in kernels(source_of(name))}
    checked = 0
    users: dict[str, list[Any]] = {}
    for op, kernel in program_of(name)._built.emitted.kernel_of.items():
        users.setdefault(kernel.name, []).append(op)
    for kernel, ops in users.items():
        if kernel not in texts:
            continue  # the call of a library
        comments, text = texts.pop(kernel)
        computed = [each for op in ops for each in (op, *(op.blocks[0].ops if op.blocks else ()))]
        inside = [each.where for each in computed if each.where is not None]
        for line in (int(number) for number in re.findall(rf"^// {FILE}:(\d+)", "\n".join(comments), re.MULTILINE)):
            variables, column = value_of(LINES[line - 1])
            parts = [where.column for where in inside if where.line == line and where.phase != "backward"]
            assert parts, f"no value of the line {LINES[line - 1]}\n{text}"
            for variable in variables if column in parts else ():
                checked += 1
                assert re.search(rf"\b(\w+_)?{variable}(_\w+)?\b", code_of(text)), f"{LINES[line - 1]}\n{text}"
    assert not texts
    assert checked or name in ("the_readme", "a_recursion")


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program.kernels])
def test_kernels_are_in_their_sections(name: str) -> None:
    source = source_of(name)
    found = []
    for title, text in sections(source):
        names = [each for each in KERNEL.findall(text) if not HELPER.search(each)]
        if names and title != "entry points":
            found.append(f"{title}: {' '.join(names)}")
    assert "; ".join(found) == PROGRAMS[name].kernels


@pytest.mark.parametrize("name", PROGRAMS)
def test_parameters_of_kernels_are_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CUDA", "emulate")
    generic = {"a", "b", "c", "input_0", "input_1"} - {*PROGRAMS[name].names.split()}
    for kernel, _, text in kernels(source_of(name)):
        code = code_of(text)
        head = code[code.index(f" {kernel}(") :]
        parameters = re.findall(r"(\w+)(?:,|$)", head[: head.index(")")].replace("\n", " "))
        assert parameters and not generic & {*parameters}, head


@pytest.mark.parametrize("bias", [True, False])
def test_the_gradient_of_a_value_of_the_library_has_no_name_of_the_user(bias: bool) -> None:
    model = nn.Linear(4, 1, bias=bias)

    @st.function
    def gradient(x: Any, y: Any) -> Any:
        return st.grad(lambda: st.mse_loss(model(x), y), wrt=model)()

    code = code_of(gradient.stage(np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)).source)
    assert not re.search(r"\bd_[xy]\b", code), code


def test_a_program_without_derivatives_has_one_section_of_kernels() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    @st.function
    def predict(x: Any) -> Any:
        return model(x)

    source = predict.stage(np.ones((3, 4), np.float32)).source
    titles = [title for title, _ in sections(source)]
    assert "kernels" in titles and not {"forward", "backward", "update"} & {*titles}, titles


def test_a_step_of_the_users_own_is_an_update() -> None:
    weight = st.Variable(np.ones(40, np.float32), name="weight")

    @st.function
    def step(x: Any) -> Any:
        loss, grad = st.value_and_grad(lambda: st.sum(st.sin(weight * x)), wrt=[weight])()
        weight.value = weight - 0.1 * grad[0]
        return loss

    source = step.stage(np.ones(40, np.float32)).source
    assert "update_weight(" in source or "forward, backward and update" in source, source
    assert "forward and update" not in source and "forward and backward;" not in source, source


def test_clipped_gradients_belong_to_the_update() -> None:
    model = nn.Linear(40, 30)
    opt = optim.SGD(model.parameters(), lr=0.1)

    @st.function
    def step(x: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.mean(st.sin(model(x))), wrt=model)()
        grads, _ = optim.clip_grad_norm(grads, 1.0)
        opt.step(grads)
        return loss

    source = step.stage(np.ones((20, 40), np.float32)).source
    (update,) = [text for title, text in sections(source) if title == "update"]
    assert "update_parameter(" in update and "clip_grad_norm" in update, source


def test_the_new_value_of_a_number_of_a_variable_has_a_name_of_its_own() -> None:
    total = st.Variable(np.float32(0), name="total")

    @st.function
    def add(x: Any) -> Any:
        total.value = total + x
        doubled = total * 2.0
        return doubled, st.exp(doubled)

    code = code_of(str(add.stage(np.float32(1)).source))
    assert "new_total = " in code and "*args->total = new_total;" in code and "total_2" not in code, code


def test_a_cast_of_a_number_is_written_where_it_is_used() -> None:
    steps = st.Variable(np.int64(0), name="steps")

    @st.function
    def rates() -> Any:
        steps.value = steps + 1
        count = st.astype(steps.value, st.f32)
        return st.exp(count), st.cos(count)

    code = code_of(str(rates.stage().source))
    assert code.count("(float)new_steps") == 2, code


def test_a_gradient_of_several_terms_is_one_sum() -> None:
    @st.function
    def slope(x: Any) -> Any:
        return st.grad(lambda x: st.sin(x) * x + st.exp(x) * st.cos(x))(x)

    code = code_of(str(slope.stage(np.float64(0.5)).source))
    assert "d_x_2" not in code, code


def test_a_comment_is_not_repeated_inside_of_the_loop_that_it_is_on() -> None:
    @st.function
    def train(x: Any, y: Any) -> Any:
        total = 0.0
        for rows, others in st.batches(x, y, size=4):
            total += st.sum(rows * others)
        return total

    source = str(train.stage(floats(8, 4), floats(8, 4)).source)
    assert source.count("for rows, others in st.batches") == 1, source


@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_have_at_most_120_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CUDA", "emulate")
    assert [line for line in source_of(name).splitlines() if len(line) > 120] == []


def test_few_names_are_a_noun_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value is called after the user's value or the layer that it is a part of: `hidden_scaled`, not `scaled`."""
    monkeypatch.setenv("STAGED_CUDA", "emulate")
    sources = {name: source_of(name) for name in PROGRAMS}
    count = sum(len(list(declared(source))) for source in sources.values())
    bare = {name: found for name, source in sources.items() if (found := bare_names(source, "\n".join(LINES)))}
    assert sum(map(len, bare.values())) <= 0.02 * count, (count, bare)


def test_a_branch_computes_what_it_yields_in_the_variable_of_the_result() -> None:
    @st.function
    def step(x: Any) -> Any:
        y = st.exp(x)
        if y > 2.0:
            y = st.sin(x) / 3.0
            z = y * y
        else:
            z = x
        return y, z

    code = code_of(str(step.stage(np.float64(1)).source))
    assert re.search(r"y_2 = st_sin_f64\(args->x\) / 3\.0;", code) and "y_3" not in code, code


def test_the_results_of_a_function_without_names_are_named_after_it() -> None:
    def turned(x: Any, y: Any) -> Any:
        return x * 0.6 - y * 0.8, x * 0.8 + y * 0.6

    @st.function
    def twice(x: Any, y: Any) -> Any:
        point = turned(x, y)
        return st.exp(point[0]) + point[0], st.exp(point[1]) + point[1]

    code = code_of(str(twice.stage(np.float64(1), np.float64(2)).source))
    assert "turned_0 = " in code and "turned_1 = " in code, code


def test_what_a_branch_keeps_for_the_backward_pass_is_named_after_what_it_is_computed_from() -> None:
    @st.function
    def slope(x: Any) -> Any:
        def f(x: Any) -> Any:
            while x < 9.0:
                if x > 2.0:
                    x = x * st.sqrt(2.0 * x + 1.0)
                else:
                    x = x + 1.0
            return x

        return st.grad(f)(x)

    code = code_of(str(slope.stage(np.float64(1)).source))
    assert "double x_root;" in code and not re.search(r"\broot\b", code), code


def test_the_value_of_two_layers_in_one_kernel_has_the_name_of_the_layer() -> None:
    @st.function
    def both(x: Any, y: Any) -> Any:
        return norms[0](x) + norms[1](y)

    norms = nn.ModuleList([nn.BatchNorm1d(40), nn.BatchNorm1d(40)])
    code = code_of(str(both.stage(floats(30, 40), floats(30, 40)).source))
    assert "batchnorm1d0_centre" in code and "batchnorm1d1_centre" in code and "centre_2" not in code, code


def test_a_result_whose_name_an_operand_has_is_new() -> None:
    @st.function
    def turned(x: Any) -> Any:
        x = x.T
        return x

    code = code_of(str(turned.stage(floats(30, 40)).source))
    assert "float *new_x" in code and "x_2" not in code, code
