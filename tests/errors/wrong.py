"""Wrong programs, and what each must say. The line that the error names is marked with `# !`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from staged import errors

X = np.arange(1, 4, dtype=np.float32)
M = np.ones((2, 3), np.float32)


@dataclass(frozen=True)
class Wrong:
    """`body` is the text of a file that defines `f`; `f(*args)` is called."""

    name: str
    body: str
    args: tuple[Any, ...]
    error: type[Exception]
    message: str
    hint: str
    options: str = field(default="")


WRONG = (
    Wrong(
        "inner sizes of a matrix product",
        """
        def f(x, w):
            h = x @ w  # !
            return h
        """,
        (M, M),
        errors.ShapeError,
        "matmul needs equal inner sizes, got (2, 3) @ (2, 3)",
        "",
    ),
    Wrong(
        "shapes that do not broadcast",
        """
        def f(x):
            return x + st.zeros((4,))  # !
        """,
        (X,),
        errors.ShapeError,
        "(3,)",
        "",
    ),
    Wrong(
        "f64 written into an f32 array",
        """
        def f(x):
            out = st.zeros((3,))
            out[0] = x[1] * 2.0  # !
            return out
        """,
        (X.astype(np.float64),),
        errors.DTypeError,
        "cannot write f64 () into f32 (3,)",
        "make `out` f64 where it is made, line 5, with `dtype=x.dtype`; `st.astype(v, st.f32)` would round what is written",
    ),
    Wrong(
        "an f32 total of f64 elements",
        """
        def f(x):
            total = st.zeros(())
            for i in st.range(3):
                total = total + x[i]  # !
            return total
        """,
        (X.astype(np.float64),),
        errors.CarriedValueError,
        "`total` is f32 () before the loop and f64 () after an iteration: the dtype differs",
        "make `total` f64 where it is made, with `dtype=x.dtype`",
    ),
    Wrong(
        "a float where an integer is needed",
        """
        def f(x):
            return st.take(x, x)  # !
        """,
        (X,),
        errors.DTypeError,
        "integer",
        "",
    ),
    Wrong(
        "a name bound in one branch only",
        """
        def f(x, n):
            if n > 3:
                y = x * 2.0
            return y  # !
        """,
        (X, 4),
        errors.UnboundNameError,
        "`y` is not bound on every path through the `if` at line 5, which binds it only when its condition holds",
        "bind `y` before the `if` at line 5",
    ),
    Wrong(
        "a name bound in a loop only",
        """
        def f(x, n):
            for i in st.range(n):
                y = x * i
            return y  # !
        """,
        (X, 4),
        errors.UnboundNameError,
        "`y` is bound only inside the loop at line 5, which may run zero times",
        "bind `y` before the loop",
    ),
    Wrong(
        "a carried value that changes shape",
        """
        def f(x, n):
            for i in st.range(n):
                x = st.concat([x, x])  # !
            return x
        """,
        (X, 4),
        errors.CarriedValueError,
        "`x` is f32 (3,) before the loop and f32 (6,) after an iteration: the shape differs",
        "give `x` one dtype and shape on all paths",
    ),
    Wrong(
        "a carried value that changes dtype",
        """
        def f(x, n):
            total = x.sum()
            while total < n:
                total = st.astype(total, st.f64) * 2.0  # !
            return total
        """,
        (X, 400),
        errors.CarriedValueError,
        "`total` is f32 () before the loop and f64 () after an iteration: the dtype differs",
        "st.astype",
    ),
    Wrong(
        "branches that give different shapes",
        """
        def f(x, n):
            if n > 3:
                y = x
            else:
                y = x.sum()  # !
            return y
        """,
        (X, 4),
        errors.CarriedValueError,
        "`y` is f32 (3,) in the first branch and f32 () in the other: the shape differs",
        "give `y` one dtype and shape on all paths",
    ),
    Wrong(
        "branches that give different text",
        """
        def f(x, n):
            name = "a"
            if n > 3:  # !
                name = "b"
            return x, name
        """,
        (X, 4),
        errors.CarriedValueError,
        "`name` is the value 'b' in the first branch and the value 'a' in the other",
        "strings cannot differ by path",
    ),
    Wrong(
        "an array as a condition",
        """
        def f(x):
            if x > 2.0:  # !
                x = x + 1.0
            return x
        """,
        (X,),
        errors.StagedValueError,
        "a condition needs one truth value",
        "st.any",
    ),
    Wrong(
        "bool() out of the front end's reach",
        """
        def f(x):
            return [k for k in (1, 2) if x.sum() > k]  # !
        """,
        (X,),
        errors.StagedValueError,
        "cannot take bool() of",
        "write the condition as `if`/`while`",
    ),
    Wrong(
        "a staged value as a Python index",
        """
        def f(x, n):
            return [x, x * 2.0][n]  # !
        """,
        (X, 1),
        errors.StagedValueError,
        "cannot use as a Python index `n`",
        "st.function(static=",
    ),
    Wrong(
        "int() in library code",
        """
        import operator

        def f(x, n):
            return x * operator.index(n)  # !
        """,
        (X, 3),
        errors.StagedValueError,
        "`n`: it is staged (i64 () weak), its value exists only when the program runs",
        "static",
    ),
    Wrong(
        "a staged size",
        """
        def f(x, n):
            return x.reshape((n, 1))  # !
        """,
        (X, 3),
        errors.StagedError,
        "known while staging",
        "make the argument static",
    ),
    Wrong(
        "a staged batch size",
        """
        def f(x, size):
            for batch in st.batches(x, size=size):  # !
                x = x + batch.sum()
            return x
        """,
        (X, 3),
        errors.StagedValueError,
        "the batch size must be static: it is a shape",
        'st.function(static=("size",))',
    ),
    Wrong(
        "an unsupported pattern",
        """
        def f(x):
            match x:
                case [a, _]:  # !
                    return a
        """,
        (X,),
        errors.StagingError,
        "this pattern of a `match` cannot be staged",
        "match values, and take them apart by names",
    ),
    Wrong(
        "a generator as a helper in a loop of the program",
        """
        def numbers():
            yield 1

        def f(x):
            for _ in st.range(3):
                for k in numbers():  # !
                    x = x + k
            return x
        """,
        (X,),
        errors.StagingError,
        "`numbers` is a generator, which runs while staging, and is called inside the loop",
        "make a list of its items before",
    ),
    Wrong(
        "a list that grows in a staged loop",
        """
        def f(x, n):
            losses = []
            for i in st.range(n):
                losses.append(x * i)  # !
            return losses
        """,
        (X, 3),
        errors.StaticStateError,
        "the list `losses` changes its length inside the loop at line 6",
        "collect values in `st.Stack(like, max=...)`",
    ),
    Wrong(
        "an attribute set in a staged branch",
        """
        class Model:
            mode = "train"

        model = Model()

        def f(x, n):
            if n > 2:
                model.mode = "eval"  # !
            return x
        """,
        (X, 3),
        errors.StaticStateError,
        "the attribute `mode` of `model` (a Model) changes inside the `if` at line 10",
        "use an `st.Variable`",
    ),
    Wrong(
        "a global written in a staged loop",
        """
        count = 0

        def f(x, n):
            global count
            for i in st.range(n):
                count = count + 1  # !
            return x
        """,
        (X, 3),
        errors.StaticStateError,
        "the outer name `count` changes inside the loop at line 8",
        "return the value, or use an `st.Variable`",
    ),
    Wrong(
        "a return on one path only",
        """
        def f(x, n):
            if n > 3:
                return x  # !
        """,
        (X, 4),
        errors.StagingError,
        "missing return: `f` returns f32 (3,) on one path and nothing on another",
        "return a value of the same type on every path",
    ),
    Wrong(
        "returns of different shapes",
        """
        def f(x, n):
            if n > 3:  # !
                return x
            return x.sum()
        """,
        (X, 4),
        errors.CarriedValueError,
        "`f` returns f32 (3,) on one path and f32 () on another: the shape differs",
        "return the same structure, dtype and shape on every path",
    ),
    Wrong(
        "a value that leaves its program",
        """
        kept = []

        def first(x):
            kept.append(x * 2.0)
            return x

        def f(x):
            if not kept:
                st.function(first).stage(x_outside)
            return x + kept[0]  # !

        x_outside = None
        """,
        (X,),
        errors.LeakError,
        "belongs to another staged function and is not available here",
        "return it from its function, or pass it as an argument",
        "leak",
    ),
    Wrong(
        "a value that leaves its transform",
        """
        def f(x):
            kept = []

            def loss(x):
                y = x * 2.0
                kept.append(y)
                return y.sum()

            g = st.grad(loss)(x)
            return g + kept[0]  # !
        """,
        (X,),
        errors.LeakError,
        "was made inside a branch, loop or transform that has ended",
        "return it",
    ),
    Wrong(
        "the gradient of an array",
        """
        def f(x):
            return st.grad(lambda y: y * 2.0)(x)  # !
        """,
        (X,),
        errors.GradientError,
        "needs a scalar, it returns f32 (3,)",
        "st.sum(...)",
    ),
    Wrong(
        "the gradient of an integer",
        """
        def f(x):
            return st.grad(lambda y: st.argmax(y))(x)  # !
        """,
        (X,),
        errors.GradientError,
        "needs a float, it returns i64 ()",
        "integers and bools have no gradient",
    ),
    Wrong(
        "the gradient by an integer",
        """
        def f(n):
            return st.grad(lambda k: k * 1.5)(n)  # !
        """,
        (3,),
        errors.GradientError,
        "i64 () weak, does not exist: it is not a float",
        "st.astype",
    ),
    Wrong(
        "the gradient of a choice between integers",
        """
        def f(x):
            def steps(y):
                return 1 if y.sum() > 2.0 else 2

            return st.grad(steps)(x)  # !
        """,
        (X,),
        errors.GradientError,
        "needs a float, it returns i64 () weak",
        "integers and bools have no gradient",
    ),
    Wrong(
        "the gradient through a list that grows without a bound",
        """
        def f(x, n):
            def loss(y):
                rows = []
                for i in st.range(n):
                    rows.append(y * i)  # !
                return st.sum(rows[0])

            return st.grad(loss)(x)
        """,
        (X, 3),
        errors.StaticStateError,
        "the list `rows` changes its length inside the loop",
        "st.Stack(like, max=...)",
    ),
    Wrong(
        "the gradient through a Stack without a bound",
        """
        def f(x, n):
            def loss(y):
                rows = st.Stack(y)  # !
                for i in st.range(n):
                    rows.append(y * i)
                return st.sum(rows.array())

            return st.grad(loss)(x)
        """,
        (X, 3),
        errors.StagingError,
        "a Stack without a bound cannot be staged",
        "st.Stack(like, max=1000)",
    ),
    Wrong(
        "the gradient by a Stack, whose length is an integer",
        """
        def f(x):
            rows = st.Stack(x, max=3)
            return st.grad(lambda s: st.sum(s.array()))(rows)  # !
        """,
        (X,),
        errors.GradientError,
        "by an argument, i64 () weak, does not exist: it is not a float",
        "differentiate by float arrays",
    ),
    Wrong(
        "the gradient through a function of another library",
        """
        import json

        def f(x):
            return st.grad(lambda y: y * len(json.dumps(y)))(x)  # !
        """,
        (2.0,),
        errors.StagedValueError,
        "`json.dumps` cannot take staged values: Object of type StagedArray is not JSON serializable",
        "st.custom_vjp",
    ),
    Wrong(
        "the gradient through a function of NumPy that we do not have",
        """
        import numpy as np

        def f(x):
            return st.grad(lambda y: np.partition(y, 1)[0])(x)  # !
        """,
        (X,),
        errors.StagingError,
        "np.partition is not available",
        "`st.sort(x)` has all in order",
    ),
    Wrong(
        "the gradient through a function without derivative of its own",
        """
        def f(x):
            double = st.custom_vjp(lambda z: z * 2.0)
            return st.grad(lambda y: double(y))(x)  # !
        """,
        (2.0,),
        errors.GradientError,
        "is a `custom_vjp` without derivative",
        "defvjp(forward, backward)",
    ),
    Wrong(
        "the gradient through what a file holds",
        """
        def f(x):
            def loss(y):
                with open("scale.txt") as file:  # !
                    return y * float(file.read())

            return st.grad(loss)(x)
        """,
        (2.0,),
        errors.StagingError,
        "a program writes text files, the mode 'r' cannot be staged",
        "pass the data as arguments",
    ),
    Wrong(
        "the gradient through an order",
        """
        def f(x):
            return st.grad(lambda y: sorted([y[0], y[1]])[0])(x)  # !
        """,
        (X,),
        errors.StagingError,
        "`sorted` of staged values cannot be staged",
        "min(a, b), max(a, b)",
    ),
    Wrong(
        "the gradient of a text",
        """
        def f(x):
            return st.grad(lambda y: f"{y}")(x)  # !
        """,
        (2.0,),
        errors.GradientError,
        "needs a float scalar, it returns a StagedString",
        "return the loss",
    ),
    Wrong(
        "the gradient through Python's gamma function",
        """
        import math

        def f(x):
            return st.grad(lambda y: math.gamma(y))(x)  # !
        """,
        (2.0,),
        errors.StagingError,
        "`math.gamma` of a staged value cannot be staged",
        "pass the result as an argument",
    ),
    Wrong(
        "a Variable of another dtype",
        """
        v = st.Variable([1.0, 2.0, 3.0], name="w")

        def f(x):
            v.value = st.astype(x, st.f64)  # !
            return x
        """,
        (X,),
        errors.DTypeError,
        "`w` holds f32 (3,), got f64 (3,)",
        "st.astype(value, st.f32)",
    ),
    Wrong(
        "a Variable made in a staged loop",
        """
        def f(x, n):
            for i in st.range(n):
                v = st.Variable(x)  # !
                x = x + v
            return x
        """,
        (X, 3),
        errors.StagingError,
        "a Variable is made inside a staged loop",
        "make it before the loop",
    ),
    Wrong(
        "Python's random numbers",
        """
        import random

        def f(x):
            return x * random.random()  # !
        """,
        (X,),
        errors.StagingError,
        "the random function `random` inside a staged function would give one number for all runs",
        "st.random.uniform",
    ),
    Wrong(
        "input",
        """
        def f(x):
            name = input("name? ")  # !
            return x
        """,
        (X,),
        errors.StagingError,
        "`input` inside a staged function cannot be staged",
        "pass the value as an argument",
    ),
    Wrong(
        "a format that does not fit",
        """
        def f(x):
            print(f"{x.sum():d}")  # !
            return x
        """,
        (X,),
        errors.StagingError,
        "d",
        "",
    ),
    Wrong(
        "an unsupported dtype",
        """
        def f(x):
            return x
        """,
        (X.astype(np.longdouble),),
        errors.DTypeError,
        "`x` has dtype float128, shape (3,), which has no staged type",
        ".astype(np.float64)",
        "no line",
    ),
    Wrong(
        "a NumPy function without a staged meaning",
        """
        import numpy as np

        def f(x):
            return np.unwrap(x)  # !
        """,
        (X,),
        errors.StagingError,
        "np.unwrap is not available",
        "write `x - 2 * np.pi * st.concat(",
    ),
    Wrong(
        "recursion that a staged value ends",
        """
        def fib(n):  # !
            if n < 2:
                return n
            return fib(n - 1) + fib(n - 2)

        def f(n):
            return fib(n)
        """,
        (9,),
        errors.StagingError,
        "`fib` calls itself under a staged condition: staging it would never end",
        "decorate `fib` with `@st.function`: it becomes a function of the program",
    ),
    Wrong(
        "recursion on every path",
        """
        @st.function
        def endless(n):
            if n > 3:
                return endless(n - 1)
            return endless(n + 1)  # !

        def f(n):
            return endless(n)
        """,
        (9,),
        errors.StagingError,
        "`endless` calls itself on every path: it would never return",
        "return without a further call on one path",
    ),
    Wrong(
        "a recursive lambda",
        """
        def f(n):
            fib = lambda k: k if k < 2 else fib(k - 1) + fib(k - 2)  # !
            return fib(n)
        """,
        (9,),
        errors.StagingError,
        "calls itself without end while staging",
        "decorate the function with `@st.function` (a lambda as a `def`)",
    ),
    Wrong(
        "an outer name changed by a recursive function",
        """
        def f(n):
            total = 0.0

            @st.function
            def add(k):
                nonlocal total
                total = total + k * 1.0  # !
                if k > 0:
                    add(k - 1)

            add(n)
            return total
        """,
        (9,),
        errors.StaticStateError,
        "the outer name `total` changes inside the recursive function `add`",
        "return the value, or make `total` an `st.Variable` before the call",
    ),
    Wrong(
        "a list changed by a recursive function",
        """
        def f(n):
            kept = []

            @st.function
            def collect(k):
                kept.append(k)  # !
                if k > 0:
                    collect(k - 1)

            collect(n)
            return kept[0]
        """,
        (9,),
        errors.StaticStateError,
        "the list `kept` changes inside the recursive function `collect`",
        "use an `st.Variable`",
    ),
    Wrong(
        "a Variable made by a recursive function",
        """
        @st.function
        def f(n):
            v = st.Variable(0.0)  # !
            if n == 0:
                return v.value
            return f(n - 1) + v.value
        """,
        (9,),
        errors.StagingError,
        "a Variable is made inside the recursive function `f`, whose calls would share it",
        "make it before `f` is called",
    ),
    Wrong(
        "a derivative that needs itself",
        """
        @st.function
        def f(x, n):
            if n == 0:
                return st.sin(x)
            return st.grad(lambda y: f(y, n - 1))(x)  # !
        """,
        (0.5, 3),
        errors.GradientError,
        "a transform inside `f` needs `f` itself: its order would be known only when the program runs",
        "take the derivative outside of `f`",
    ),
    Wrong(
        "recursion that returns other shapes",
        """
        @st.function
        def f(x, n):
            if n == 0:  # !
                return x
            return st.concat([x, f(x, n - 1)])
        """,
        (X, 3),
        errors.StagingError,
        "`f` returns f32 (3,) on one path and f32 (6,) on another",
        "return the same structure, dtype and shape on every path",
    ),
    Wrong(
        "an exit past a `finally`",
        """
        def f(x, n):
            for i in st.range(n):
                try:
                    if i > 1:  # !
                        break
                finally:
                    x = x * 2.0
            return x
        """,
        (X, 3),
        errors.StagingError,
        "`break` under a staged condition cannot leave a `try` with `finally`",
        "do what has to be done before the exit",
    ),
    Wrong(
        "a raise that a try would catch",
        """
        def f(x, n):
            try:
                if n > 2:
                    raise ValueError("no")  # !
            except ValueError:
                x = x + 1.0
            return x
        """,
        (X, 3),
        errors.StagingError,
        "cannot be caught by a `try` around it",
        "return a value that says what went wrong",
    ),
    Wrong(
        "an element of a nameless array",
        """
        def give(x):
            return x * 2.0

        def f(x):
            give(x)[0] = 1.0  # !
            return x
        """,
        (X,),
        errors.StagingError,
        "an element is assigned to an array that has no local name",
        "give the array a local name first",
    ),
    Wrong(
        "batches of arrays with different lengths",
        """
        def f(x, m):
            for a, b in st.batches(x, m, size=2):  # !
                x = x + a.sum() + b.sum()
            return x
        """,
        (X, M),
        errors.ShapeError,
        "batches needs arrays with equal first dimensions, got (3,), (2, 3)",
        "one row per sample",
    ),
)
"""Found while staging: no compiler runs."""


FAILING = (
    Wrong(
        "an assertion",
        """
        def f(x, n):
            assert n > 5, f"n is {n}"  # !
            return x
        """,
        (X, 3),
        errors.ProgramAssertionError,
        "n is 3",
        "",
    ),
    Wrong(
        "an error raised in a branch",
        """
        def f(x, n):
            if n < 5:
                raise ValueError(f"n is {n}, sum {x.sum():.1f}")  # !
            return x
        """,
        (X, 3),
        errors.ProgramValueError,
        "n is 3, sum 6.0",
        "",
    ),
    Wrong(
        "an index out of range",
        """
        def f(x, i):
            return x[i]  # !
        """,
        (X, 7),
        errors.ProgramIndexError,
        "7",
        "",
    ),
    Wrong(
        "a label out of range",
        """
        def f(x, labels):
            return st.cross_entropy(x, labels)  # !
        """,
        (M, np.array([0, 9], np.int32)),
        errors.ProgramIndexError,
        "9",
        "",
    ),
    Wrong(
        "an integer division by zero",
        """
        def f(n, m):
            return n // m  # !
        """,
        (3, 0),
        errors.ProgramZeroDivisionError,
        "zero",
        "",
    ),
)
"""Found when the program runs: it stops, Python goes on."""
