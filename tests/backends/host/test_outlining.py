"""Long functions of the host become several: with the same results, without warnings, and named after their work."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.backends.host import outlining
from staged.backends.host.body import ERROR_KIND, OK
from staged.backends.host.outlining import Outlined, Outliner
from staged.backends.host.sections import Origin, Sections
from staged.code.expr import Index, Infix, Items, Literal, Member, Prefix, Variable, call
from staged.code.kernel_text import KernelText
from staged.code.printer import print_body
from staged.code.tree import Assign, Block, Comment, Declare, DeclareTable, Do, If, Jump
from staged.code.types import BYTES, INDEX, word
from staged.code.uses import written_names
from staged.code.writer import Names, Writer
from staged.ir.sizes import Dim
from staged.source import Position, called_function, keep_lines

STRICT = "-O1 -Wall -Wextra -Wconversion -Wshadow -Wpedantic -Wstrict-prototypes -Werror"
RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.standard_normal((24, 6)).astype(np.float32), RNG.integers(0, 3, 24)


@pytest.fixture
def short(monkeypatch):
    """Functions of very few lines."""
    monkeypatch.setattr(outlining, "MOST", 5)
    monkeypatch.setattr(outlining, "LEAST", 3)
    monkeypatch.setattr(outlining, "LEAST_OF_SECTION", 2)


# ---- whole programs ----


def classifier():
    st.seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 3))
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    def train(x, y, epochs):
        losses = st.zeros(10)
        for epoch in st.range(epochs):
            total = 0.0
            for images, labels in st.batches(x, y, size=8, shuffle=True):
                loss, grads = st.value_and_grad(
                    lambda images, labels: st.cross_entropy(model(images), labels), wrt=model
                )(images, labels)
                optimizer.step(grads)
                total += loss
            losses[epoch] = total
            print(f"{total:.3f}")
        return losses

    return train, (IMAGES, LABELS, 3)


def made_inside():
    """A model that the program creates, and a result of several arrays."""

    def train(x, y, seed):
        st.seed(seed)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.BatchNorm1d(5), nn.Linear(5, 3))
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in st.range(4):
            grads = st.grad(lambda: st.cross_entropy(model(x), y), wrt=model)()
            optimizer.step(grads)
        return model.state_dict()

    return train, (IMAGES, LABELS, 3)


def with_jumps():
    """Loops that end early, and an index that may be out of range."""

    def search(x, most):
        found = st.zeros(24)
        count = 0
        for i in st.range(24):
            total = st.sum(st.tanh(x[i]))
            if total < -1.0:
                continue
            if count >= most:
                break
            found[count] = total
            count += 1
        return found, count

    return search, (IMAGES, 5)


def with_the_names_of_sections():
    """Variables of the user that are called as sections are."""

    def step(x, update):
        forward = st.sum(x) * update
        for backward in st.range(3):
            update += st.sum(st.grad(lambda x: st.sum(st.tanh(x) ** 2.0))(x)) * backward
            forward += update
        return forward, update

    return step, (IMAGES, 2.0)


def with_a_long_section_that_returns_its_result():
    weights = [st.Variable(np.full((6, 6), 0.1 * k, np.float32)) for k in range(1, 10)]
    functions = [st.tanh, st.sin, lambda x: st.softmax(x) + x, lambda x: st.cumsum(st.cos(x), axis=1)]

    def loss_of(x):
        for k, weight in enumerate(weights):
            x = functions[k % 4](x @ weight)
        return st.mean(x * x)

    def step(x):
        loss, grads = st.value_and_grad(loss_of, wrt=weights)(x)
        for weight, grad in zip(weights, grads, strict=True):
            weight.value = weight - 0.1 * grad
        return loss

    return step, (IMAGES,)


@pytest.mark.parametrize(
    "make",
    [classifier, made_inside, with_jumps, with_the_names_of_sections, with_a_long_section_that_returns_its_result],
)
def test_short_functions_compute_the_same_without_warnings(make, short, monkeypatch, capsys):
    function, args = make()
    monkeypatch.setenv("STAGED_CFLAGS", STRICT)
    divided = st.function(function)
    results, shown = divided(*args), capsys.readouterr().out
    monkeypatch.setattr(outlining, "MOST", 10**9)
    function, args = make()
    whole = st.function(function)
    expected = whole(*args)
    assert shown == capsys.readouterr().out
    flat = results.values() if isinstance(results, dict) else results if isinstance(results, tuple) else [results]
    other = expected.values() if isinstance(expected, dict) else expected if isinstance(expected, tuple) else [expected]
    assert [np.asarray(each).tobytes() for each in flat] == [np.asarray(each).tobytes() for each in other]


def test_a_training_loop_calls_its_sections(short):
    function, args = classifier()
    source = st.function(function).stage(*args).source
    loop = source[source.index("\nint train(") :]
    calls = re.findall(r"(?<=[ (])(forward|backward|update)\(", loop)
    assert calls == ["forward", "backward", "update"]
    function, args = made_inside()
    source = st.function(function).stage(*args).source
    assert "initialize(" in set(re.findall(r"\w+\(", source[source.index("\nint train(") :]))


def test_an_error_inside_of_a_section_stops_the_program(short):
    def train(x, places):
        grad = st.grad(lambda w: st.sum(st.tanh(w[places]) ** 2.0))(x)
        return st.sum(st.exp(grad), axis=0)

    with pytest.raises(IndexError, match="index 30"):
        st.function(train)(IMAGES, np.array([1, 30]))


# ---- trees ----


def place(function: str, phase: str = "") -> Position:
    return Position("model.py", 3, 0, 3, 5, function, phase)


def divided(body, sections, parameters=()):
    """The lines of a function and of those that it is divided into; `sections` are those of its statements."""
    origins = {
        statement: Origin(section, "", place("train" if section == "own" else "forward"))
        if section != "own"
        else Origin("", "", place("train"))
        for statement, section in zip(body, sections, strict=True)
        if section
    }
    names = Names()
    outliner = Outliner(origins, place("train"), names.fresh)
    kept = outliner.with_first_values(outliner.by_section(body, parameters))
    outliner.divide_sections()
    w = Writer()
    for made in outliner.made:
        made.write(w, names)
    return [line.strip() for line in w.lines if not line.startswith("//")], [each.strip() for each in print_body(kept)]


def do(name: str, *arguments) -> Do:
    return Do(call(name, *arguments))


def test_a_constant_is_the_result_of_a_function_that_cannot_fail(short):
    total, loss = Variable("total", INDEX), Variable("loss", INDEX)
    body = [
        Declare(total, Literal("1")),
        do("f", "total"),
        Declare(loss, Infix("+", call("g"), total)),
        do("h", "loss"),
        do("h", "loss"),
        do("h", "loss"),
    ]
    made, kept = divided(body, ["forward", "forward", "forward", "own", "own", "own"])
    assert made == [
        "static int64_t forward(void) {",
        "const int64_t total = 1;",
        "f(total);",
        "const int64_t loss = g() + total;",
        "return loss;",
        "}",
    ]
    assert kept == ["const int64_t loss = forward();", *["h(loss);"] * 3]


def test_results_of_a_function_that_may_fail_are_written_through_pointers(short, monkeypatch):
    monkeypatch.setattr(outlining, "MOST", 7)
    loss, count = Variable("loss", INDEX), Variable("count", INDEX)
    check = If(Infix("!=", call("f"), OK), (Jump("return", value=ERROR_KIND),))
    body = [
        Declare(count, Literal("0"), is_const=False),
        check,
        Declare(loss, call("g")),
        Assign(count, loss, "+"),
        do("f", Prefix("&", count)),
        do("h", "loss", "count"),
        do("h", "loss", "count"),
    ]
    made, kept = divided(body, ["own", "forward", "forward", "forward", "forward", "own", "own"])
    assert made == [
        "static int forward(int64_t *count, int64_t *loss) {",
        "if (f() != ST_OK) {",
        "return host->error_kind;",
        "}",
        "*loss = g();",
        "*count += *loss;",
        "f(count);",
        "return ST_OK;",
        "}",
    ]
    assert kept[:3] == ["int64_t count = 0;", "int64_t loss = 0;", "if (forward(&count, &loss) != ST_OK) {"]


def test_a_constant_is_passed_by_value_although_its_address_is_used(short):
    kept = Variable("kept", INDEX)
    body = [Declare(kept, call("g")), do("h"), do("h"), *[do("f", Prefix("&", kept))] * 3]
    made, main = divided(body, ["own", "own", "own", "forward", "forward", "forward"])
    assert made[:2] == ["static void forward(int64_t kept) {", "f(&kept);"]
    assert main[-1] == "forward(kept);"


def test_the_items_of_a_kernel_follow_a_size_that_is_passed_by_address(short, monkeypatch):
    monkeypatch.setattr(outlining, "MOST", 7)
    n = Variable("n", INDEX)
    items = KernelText("f", "", (), 8, items_size=-(-Dim("0") // 28) * 3).items_of([n])
    check = If(Infix("!=", call("f"), OK), (Jump("return", value=ERROR_KIND),))
    body = [Declare(n, call("g")), check, do("f", items), do("f", items), do("h", "n"), do("h", "n"), do("h", "n")]
    made, _ = divided(body, ["forward", "forward", "forward", "forward", "own", "own", "own"])
    assert made[:2] == ["static int forward(int64_t *n) {", "*n = g();"]
    assert made.count("f((*n + 27) / 28 * 3);") == 2


def test_addresses_are_computed_again(short):
    base, x = Variable("base", BYTES), Variable("x", BYTES)
    body = [Declare(x, Infix("+", base, Literal("64"))), do("f", "x"), do("g", "x"), do("h", "x"), do("h", "x"), do("h", "x")]
    made, kept = divided(body, ["forward", "forward", "forward", "own", "own", "own"], [base])
    address = "unsigned char *const x = base + 64;"
    assert made[0] == "static void forward(unsigned char *base) {" and made[1] == address
    assert kept[:2] == ["forward(base);", address]


def test_a_number_that_depends_on_a_changed_variable_is_not_computed_again(short, monkeypatch):
    monkeypatch.setattr(outlining, "MOST", 7)
    rate, old, share = Variable("rate", INDEX), Variable("old", INDEX), Variable("share", INDEX)
    body = [
        Declare(rate, Literal("8"), is_const=False),
        Declare(old, rate),
        Declare(share, Infix("-", Literal("1"), old)),
        do("f", "old"),
        Assign(rate, Literal("4")),
        do("h", "share"),
        do("h", "share"),
        do("h", "share"),
    ]
    made, kept = divided(body, ["own", *["forward"] * 4, "own", "own", "own"])
    assert "*rate = 4;" in made and "const int64_t old = *rate;" in made
    assert kept[:2] == ["int64_t rate = 8;", "const int64_t share = forward(&rate);"]


def test_variables_that_others_change_are_passed_by_address(short):
    count, state = Variable("count", INDEX), Variable("buffers", word("Buffers"))
    body = [
        Declare(count, Literal("0"), is_const=False),
        Declare(state, is_const=False),
        Assign(Member(state, "count", arrow=False), Prefix("&", count)),
        do("f", "count"),
        do("g", "count"),
        do("h", "count"),
    ]
    made, _ = divided(body, ["own", "own", "own", "forward", "forward", "forward"])
    assert made[:2] == ["static void forward(int64_t *count) {", "f(*count);"]


def test_a_variable_that_a_function_changes_has_a_first_value(short):
    count = Variable("count", INDEX)
    body = [
        Declare(count, is_const=False),
        If(call("f"), (Assign(count, Literal("1")),)),
        do("f", "count"),
        Assign(count, Literal("2")),
        do("f", "count"),
        do("h", "count"),
        do("h", "count"),
    ]
    made, kept = divided(body, ["own", "forward", "forward", "forward", "forward", "own", "own"])
    assert "static void forward(int64_t *count) {" in made and kept[0] == "int64_t count = 0;"


def test_statements_that_leave_the_function_stay(short):
    body = [do("f"), do("g"), do("h"), Jump("return", value=OK), do("f"), do("g")]
    _, kept = divided(body, ["forward", "forward", "forward", "forward", "own", "own"])
    assert kept == ["forward();", "return ST_OK;", "f();", "g();"]


CALLS = {
    "optim.clip_grad_norm(grads, 1.0)": "clip_grad_norm",
    "training.schedule.step()": "step_schedule",
    "schedule.step()": "step_schedule",
    "training.optimizer.step(grads)": "step_optimizer",
    "st.save(checkpoint, {})": "save_checkpoint",
    "self.draw()": "draw",
    "accuracy(images)": "accuracy",
    'print(f"step {step}: loss {loss}")': "print_step",
    'print(f"{total:.3f}")': "print_total",
    "print(loss)": "print_loss",
    "print(loss + 1)": "print",
}


@pytest.mark.parametrize("line", CALLS)
def test_a_function_of_a_call_has_a_verb_and_what_the_call_acts_on(line: str) -> None:
    keep_lines("actions.py", f"    {line}\n")
    where = Position("actions.py", 1, 4, 1, 4 + len(line), "train")
    made = Sections({}, None)
    statement = Do(call("f"))
    made.origins[statement] = Origin("", "", where)
    assert made.action([statement], called_function(where)) == CALLS[line]
    assert made.action([statement], "forward") == "forward"


def test_a_function_does_not_repeat_its_comment_or_have_braces_around_its_body() -> None:
    body = (Comment("train.py:1  print(x)"), Block((Do(call("print")),)), Jump("return", value=OK))
    writer = Writer()
    Outlined("print_x", "train.py:1  print(x)", (), body, True, None).write(writer, Names())
    assert [line for line in writer.lines if line] == [
        "// train.py:1  print(x)",
        "static int print_x(void) {",
        "    print();",
        "    return ST_OK;",
        "}",
    ]


def test_a_table_only_reads_the_variables_whose_addresses_it_has() -> None:
    address = Prefix("&", Variable("steps", INDEX))
    rows, table = (Items((address,)),), Variable("saved", word("st_saved"))
    assert not written_names((DeclareTable(table, rows), Assign(Index(table, Literal("0")), *rows)))
    assert written_names((Do(call("count", address)),)) == {"steps"}
