"""The memory plan and the copies of a program, before it runs.

Follows docs/guide.md#looking-at-the-program and docs/regions.md#what-is-copied.
"""

import numpy as np

import staged as st
from staged import CPU, GPU, with_backend


@st.function
def two_products(x, a, b):
    hidden = x @ a
    with with_backend(GPU, hidden):
        y = st.relu(hidden) @ b
    return y


@st.function
def on_the_host(x, a, b):
    hidden = x @ a
    return st.relu(hidden) @ b


ARGUMENTS = np.ones((16, 4), np.float32), np.ones((4, 32), np.float32), np.ones((32, 2), np.float32)


def test_the_plan_is_known_before_the_program_runs():
    memory = on_the_host.stage(*ARGUMENTS).memory
    assert 16 * 32 * 4 <= memory.peak <= memory.arena < 3 * 16 * 32 * 4 and memory.bounded
    assert "hidden" in str(memory) and str(memory.peak) in str(memory)


def test_copies_are_listed(emulated_device):
    program = two_products.stage(*ARGUMENTS)
    copies = {(copy.what, copy.source, copy.target): copy.nbytes for copy in program.transfers()}
    assert copies == {("hidden", CPU, GPU): 16 * 32 * 4, ("b", CPU, GPU): 32 * 2 * 4, ("y", GPU, CPU): 16 * 2 * 4}
    assert [line.split()[:4] for line in str(program.transfers()).splitlines()[1:]] == [
        [what, str(source), str(target), f"{nbytes:,}"] for (what, source, target), nbytes in copies.items()
    ]
