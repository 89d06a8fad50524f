"""Jacobians, Hessians, vector products and per-example gradients against PyTorch's `torch.func`, compiled and in eager mode."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from staged.testing import assert_backends_agree, compare_trees
from tests.torch_reference import reference

RNG = np.random.default_rng(11)
X = RNG.normal(size=(5, 3))
W1, B1, W2 = RNG.normal(size=(4, 3)), RNG.normal(size=4), RNG.normal(size=(2, 4))
LABELS = np.array([0, 1, 1, 0, 1])


def mlp(p: Any, x: Any, np_: Any) -> Any:
    return p["w2"] @ np_.tanh(p["w1"] @ x + p["b1"])


def ours(p: Any, x: Any) -> Any:
    return mlp(p, x, st)


def loss_ours(p: Any, x: Any, y: Any) -> Any:
    return st.cross_entropy(ours(p, x)[None], y[None])


PARAMETERS = {"w1": W1, "b1": B1, "w2": W2}


def agree(program: Any, compute: Any, *args: Any) -> None:
    """`program(*args)` gives what `compute(torch, *args)` does, which takes tensors."""

    def on_tensors(torch: Any, *args: Any) -> Any:
        def tensors(tree: Any) -> Any:
            return {key: tensors(value) for key, value in tree.items()} if isinstance(tree, dict) else torch.tensor(tree)

        return compute(torch, *map(tensors, args))

    found = assert_backends_agree(program, *args, levels=("3",), rtol=1e-10)
    compare_trees(found, reference(on_tensors, *args), rtol=1e-9, where="ours and torch's differ")


def test_jacobians() -> None:
    def theirs(torch: Any, p: Any, x: Any) -> Any:
        def f(p: Any, x: Any) -> Any:
            return mlp(p, x, torch)

        return torch.func.jacfwd(f, argnums=(0, 1))(p, x), torch.func.jacrev(f, argnums=(0, 1))(p, x)

    agree(
        lambda p, x: (st.jacfwd(ours, argnums=(0, 1))(p, x), st.jacrev(ours, argnums=(0, 1))(p, x)),
        theirs,
        PARAMETERS,
        X[0],
    )


def test_hessian_and_its_product_with_a_vector() -> None:
    def theirs(torch: Any, p: Any, x: Any, v: Any) -> Any:
        def of_x(x: Any) -> Any:
            return mlp(p, x, torch).square().sum()

        return torch.func.hessian(of_x)(x), torch.func.jvp(torch.func.grad(of_x), (x,), (v,))[1]

    def program(p: Any, x: Any, v: Any) -> Any:
        def of_x(x: Any) -> Any:
            return st.sum(st.square(ours(p, x)))

        return st.hessian(of_x)(x), st.jvp(st.grad(of_x), (x,), (v,))[1]

    agree(program, theirs, PARAMETERS, X[0], X[1])


def test_gradients_for_each_example() -> None:
    def theirs(torch: Any, p: Any, x: Any, y: Any) -> Any:
        def loss(p: Any, x: Any, y: Any) -> Any:
            return torch.nn.functional.cross_entropy(mlp(p, x, torch)[None], y[None])

        return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(p, x, y)

    agree(lambda p, x, y: st.vmap(st.grad(loss_ours), in_axes=(None, 0, 0))(p, x, y), theirs, PARAMETERS, X, LABELS)


def test_mapped_hessians_and_nested_maps() -> None:
    def energy(x: Any, np_: Any) -> Any:
        return (np_.sin(x) * x).sum() * x[0]

    def theirs(torch: Any, x: Any) -> Any:
        return (
            torch.func.vmap(torch.func.hessian(lambda x: energy(x, torch)))(x),
            torch.func.vmap(lambda a: torch.func.vmap(lambda b: (a * b).sum())(x))(x),
        )

    agree(
        lambda x: (
            st.vmap(st.hessian(lambda x: energy(x, st)))(x),
            st.vmap(lambda a: st.vmap(lambda b: (a * b).sum())(x))(x),
        ),
        theirs,
        X,
    )
