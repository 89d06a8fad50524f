"""`staged`, recurrent rows and trees: the examples' models; a run is one generated program."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import staged as st
from benchmarks.rows import (
    BATCHES,
    CLIP,
    HIDDEN,
    LENGTH,
    RECURRENT_RATE,
    TREE_CLASSES,
    TREE_HIDDEN,
    TREE_RATE,
    TREES,
    VECTOR,
    VOCABULARY,
    Row,
    Trees,
    parameters,
)
from benchmarks.workload import Workload
from examples.char_lstm.model import CharLSTM
from examples.char_rnn.model import CharRNN
from examples.treelstm.batched import Levels, batch_loss, by_level
from examples.treelstm.model import TreeLSTM
from staged import optim


def build(row: Row, data: Any, backend: Any = st.CPU) -> Workload:
    if row.kind == "recurrent":
        return recurrent(row, data, backend)
    return trees(row, data, backend) if row.batch == 1 else trees_by_level(row, data, backend)


def recurrent(row: Row, batches: Any, backend: Any = st.CPU) -> Workload:
    model = (CharLSTM if row.name == "char_lstm" else CharRNN)(VOCABULARY, HIDDEN)
    model.load_state_dict(parameters(row))
    optimizer = optim.Adagrad(model.parameters(), lr=RECURRENT_RATE)

    def loss_fn(text: Any) -> Any:
        state, total = model.start(row.batch), 0.0
        for t in st.range(LENGTH):
            state, scores = model.step(state, text[t])
            total += st.cross_entropy(scores, text[t + 1])
        return total / LENGTH

    @st.function
    def train(batches: Any, steps: Any) -> Any:
        loss = 0.0
        for step in st.range(steps):
            loss, grads = st.value_and_grad(loss_fn, wrt=model)(batches[step % BATCHES])
            optimizer.step(optim.clip_grad_value(grads, CLIP))
        return loss

    batches = st.to(batches, backend)
    program, figures = made(train, batches, 1, backend=backend)
    return Workload(lambda steps: program(batches, steps), np.asarray, figures)


def trees(row: Row, data: Trees, backend: Any = st.CPU) -> Workload:
    model = TreeLSTM(VECTOR, TREE_HIDDEN, TREE_CLASSES)
    model.load_state_dict(parameters(row))
    optimizer = optim.Adagrad(model.parameters(), lr=TREE_RATE)

    @st.function
    def train(labels: Any, words: Any, lefts: Any, rights: Any, starts: Any, table: Any, epochs: Any) -> Any:
        @st.function
        def visit(node: Any) -> Any:
            if lefts[node] < 0:
                h, c = model.leaf(table[words[node]])
                below = st.zeros(())
            else:
                left, loss_l = visit(lefts[node])
                right, loss_r = visit(rights[node])
                h, c = model.node(left, right)
                below = loss_l + loss_r
            scores = st.reshape(model.out(h), (1, TREE_CLASSES))
            return (h, c), below + st.cross_entropy(scores, st.reshape(labels[node], (1,)))

        loss = 0.0
        for _ in st.range(epochs):
            for tree in st.range(TREES):
                loss, grads = st.value_and_grad(lambda root: visit(root)[1], wrt=model)(starts[tree + 1] - 1)
                optimizer.step(grads)
        return loss

    # The host decides by the words and children; labels and vectors are computed with.
    labels, table = st.to((data.labels, data.table), backend)
    given = (labels, data.words, data.lefts, data.rights, data.starts, table)
    program, figures = made(train, *given, 1, backend=backend)
    return Workload(lambda epochs: program(*given, epochs), np.asarray, figures)


def trees_by_level(row: Row, data: Trees, backend: Any = st.CPU) -> Workload:
    model = TreeLSTM(VECTOR, TREE_HIDDEN, TREE_CLASSES)
    model.load_state_dict(parameters(row))
    optimizer = optim.Adagrad(model.parameters(), lr=TREE_RATE)
    levels = by_level(data, row.batch)

    @st.function
    def train(arrays: Any, table: Any, epochs: Any) -> Any:
        given = Levels(*arrays, levels.widest, levels.largest)

        def loss_fn(batch: Any) -> Any:
            return batch_loss(model, table, given, batch) / row.batch

        loss = 0.0
        for _ in st.range(epochs):
            for batch in st.range(given.begins.shape[0]):
                loss, grads = st.value_and_grad(loss_fn, wrt=model)(batch)
                optimizer.step(grads)
        return loss

    arrays, table = levels[:7], st.to(data.table, backend)
    program, figures = made(train, arrays, table, 1, backend=backend)
    return Workload(lambda epochs: program(arrays, table, epochs), np.asarray, figures)


def made(function: st.StagedFunction, *arguments: Any, backend: Any = st.CPU) -> tuple[st.Program, dict[str, float]]:
    """The program, ready to run, with seconds: `staging` traces, `compile` is all from IR to machine code, or the cache."""
    start = time.perf_counter()
    with st.with_backend(backend):
        program = function.stage(*arguments)
    staged = time.perf_counter()
    program.compile()
    done = time.perf_counter()
    return program, {"staging_s": staged - start, "compile_s": done - staged}
