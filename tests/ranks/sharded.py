"""Cases on several ranks: optimisers whose state is in pieces, and their checkpoints. One rank is the reference."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import staged as st
from staged import nn, optim, random
from staged.base.launcher import this_job
from staged.errors import RankError

JOB = this_job()
FOLDER = Path(os.environ.get("STAGED_TEST_RANKS", "."))
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "Adam": {"amsgrad": True, "maximize": True},
    "AdamW": {"lr": 0.01},
    "NAdam": {},
    "Rprop": {},
}
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 7)), RNG.normal(size=(12, 5))


def mlp(dtype: Any = st.f64) -> Any:
    """A model whose 464 numbers are in arrays that 2, 3 and 4 ranks do not divide."""
    st.seed(0)
    return nn.Sequential(nn.Linear(7, 33, dtype=dtype), nn.Tanh(), nn.Linear(33, 5, dtype=dtype))


def stepping(model: Any, optimizer: Any) -> Any:
    """One step, as a staged function."""

    @st.function
    def step(x, y):
        def loss_fn():
            return st.all_reduce(st.mean((model(st.shard(x)) - st.shard(y)) ** 2), "mean")

        loss, grads = st.value_and_grad(loss_fn, wrt=model)()
        optimizer.step(grads)
        return loss

    return step


def trained(name: str, shard: bool, steps: int = 5, **options: Any) -> tuple[list[float], list[Any], Any]:
    """The losses, the weights and the optimiser after a training."""
    model = mlp()
    optimizer = getattr(optim, name)(model.parameters(), shard=shard, **options)
    step = stepping(model, optimizer)
    losses = [float(step(X, Y)) for _ in range(steps)]
    return losses, [np.asarray(param.value) for param in model.parameters()], optimizer


@cache
def adamw() -> tuple[list[float], list[Any], Any]:
    return trained("AdamW", True, **OPTIMIZERS["AdamW"])


def case_training() -> dict[str, Any]:
    """Losses and weights, by optimiser."""
    names = OPTIMIZERS if JOB.ranks != 4 else ["AdamW"]
    return {name: (adamw() if name == "AdamW" else trained(name, True, **OPTIMIZERS[name]))[:2] for name in names}


def case_same_bits_without_pieces() -> bool:
    losses, weights, _ = trained("AdamW", False, **OPTIMIZERS["AdamW"])
    own_losses, own_weights, _ = adamw()
    return losses == own_losses and all(map(np.array_equal, weights, own_weights))


def case_state_bytes() -> tuple[int, int]:
    """The bytes of the state on this rank, and of the parameters."""
    model = mlp()
    optimizer = optim.AdamW(model.parameters(), shard=True)
    kept = sum(variable.value.nbytes for variable in [*optimizer.mean, *optimizer.variance])
    return kept, sum(param.value.nbytes for param in model.parameters())


def case_messages() -> dict[str, int]:
    """The calls of collectives in the text of a step."""
    model = mlp()
    step = stepping(model, optim.AdamW(model.parameters(), shard=True))
    text = str(step.stage(X, Y).source)
    return {name: text.count(f" {name}(") - text.count(f"void {name}(") for name in CALLS}


CALLS = ("st_all_reduce", "st_reduce_scatter", "st_all_gather")


def case_messages_of_rolled_layers() -> tuple[dict[str, int], float]:
    """The calls in a training of a GPT of two blocks, which are one loop, and its last loss."""
    from tests.ranks.restarting import Gpt, data_of
    from tests.ranks.restarting import stepping as gpt_stepping

    st.seed(0)
    model = Gpt()
    optimizer = optim.AdamW(model.parameters(), lr=0.01, shard=True)
    step, batch = gpt_stepping(), data_of()[:12]
    loss = [float(step(model, optimizer, batch)) for _ in range(3)][-1]
    text = str(step.stage(model, optimizer, batch).source)
    return {name: text.count(f" {name}(") - text.count(f"void {name}(") for name in CALLS}, loss


def case_halves() -> tuple[bool, dict[str, int]]:
    """Whether f16 parameters are those without pieces, and the calls."""
    found, calls = [], {}
    for shard in (False, True):
        model = mlp(st.f16)
        optimizer = optim.AdamW(model.parameters(), lr=0.01, shard=shard)
        step = stepping(model, optimizer)
        x, y = X.astype(np.float16), Y.astype(np.float16)
        step(x, y)
        found.append([np.asarray(param.value) for param in model.parameters()])
        text = str(step.stage(x, y).source)
        calls = {name: text.count(f" {name}(") - text.count(f"void {name}(") for name in CALLS}
    return all(map(np.array_equal, *found)), calls


def case_clipped_and_accumulated() -> bool:
    """Gradients with other uses are summed whole."""
    found = []
    for shard in (False, True):
        model = mlp()
        optimizer = optim.AdamW(model.parameters(), lr=0.01, shard=shard)
        every = optim.MultiSteps(optimizer, 2)

        @st.function
        def step(x, y, model=model, every=every):
            def loss_fn():
                return st.all_reduce(st.mean((model(st.shard(x)) - st.shard(y)) ** 2), "mean")

            loss, grads = st.value_and_grad(loss_fn, wrt=model)()
            grads, _ = optim.clip_grad_norm(grads, 0.1)
            every.step(grads)
            return loss

        found.append([float(step(X, Y)) for _ in range(6)])
    return found[0] == found[1]


def case_outside_of_a_function() -> str:
    model = mlp()
    optimizer = optim.AdamW(model.parameters(), shard=True)
    try:
        optimizer.step([np.zeros(param.shape) for param in model.parameters()])
    except RankError as error:
        return str(error)
    return ""


# ---- checkpoints --------------------------------------------------------------------------------


def case_files() -> dict[str, Any]:
    """The digests of the files that a program and Python write, and the leftovers."""
    model = mlp()
    optimizer = optim.AdamW(model.parameters(), lr=0.01, shard=True)
    step = stepping(model, optimizer)
    tree = {"model": model, "optimizer": optimizer, "generator": random.Generator(3), "step": 3}

    @st.function
    def save(state):
        st.save(str_of("program"), state)
        return st.asarray(0)

    for _ in range(3):
        step(X, Y)
    save(tree)
    st.save(str_of("python"), tree)

    @st.function
    def whole(optimizer):
        return optimizer.state_dict()["state"]

    state = {index: {name: np.asarray(x) for name, x in entry.items()} for index, entry in whole(optimizer).items()}
    digests = {name: hashlib.sha256(Path(str_of(name)).read_bytes()).hexdigest() for name in ("program", "python")}
    loaded = st.load(str_of("python"))["optimizer"]["state"]
    equal = all(np.array_equal(loaded[index][name], x) for index, entry in state.items() for name, x in entry.items())
    text = str(save.stage(tree).source)
    return {
        "digests": digests,
        "equal": equal,
        "leftovers": [path.name for path in FOLDER.glob("*.tmp")],
        "calls": text.count("st_save_pieces(host, ") + 10 * text.count("st_all_gather(m->"),
    }


def str_of(name: str) -> str:
    return str(FOLDER / f"{name}.safetensors")


def case_continued() -> float:
    """The loss after a load, of the state in pieces and of whole arrays."""
    losses, _, _ = trained("AdamW", True, 4, lr=0.01)
    model = mlp()
    optimizer = optim.AdamW(model.parameters(), lr=0.5, shard=True)
    loaded = st.load(str_of("python"))
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    optimizer.load_state_dict(optimizer.state_dict())
    return abs(float(stepping(model, optimizer)(X, Y)) - losses[3])


def case_unwritable() -> list[str]:
    """A file that cannot be written is an error on all ranks."""
    model = mlp()
    optimizer = optim.AdamW(model.parameters(), shard=True)
    path = str(FOLDER / "missing" / "file.safetensors")

    @st.function
    def save(optimizer):
        st.save(path, optimizer)
        return st.asarray(0)

    found = []
    for write in (lambda: save(optimizer), lambda: st.save(path, optimizer)):
        try:
            write()
        except OSError as error:
            found.append(str(error).splitlines()[0])
    return found


def case_numpy_of_a_piece() -> str:
    model = mlp()
    optimizer = optim.AdamW(model.parameters(), shard=True)
    try:
        np.asarray(optimizer.state_dict()["state"][0]["exp_avg"])
    except st.StagingError as error:
        return str(error)
    return ""


def case_files_of_local_values() -> tuple[str, list[float]]:
    """The error of a file without the rank in its name, and the arrays of the files with it, or of gathered arrays."""

    @st.function
    def to_one():
        st.save(str_of("one"), st.zeros(2) + st.rank())
        return st.asarray(0)

    @st.function
    def to_each():
        st.save(f"{FOLDER}/each-{st.rank()}.safetensors", st.zeros(2) + st.rank())
        st.save(str_of("gathered"), {"x": st.all_gather(st.zeros(2) + st.rank())})
        return st.asarray(0)

    text = ""
    try:
        to_one()
    except RankError as error:
        text = str(error)
    to_each()
    return text, [*st.load(f"{FOLDER}/each-{JOB.rank}.safetensors"), *st.load(str_of("gathered"))["x"]]
