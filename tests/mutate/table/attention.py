"""Planted faults of attention in blocks."""

from tests.mutate.mutant import Mutant

ATTENTION, TESTS = "staged/ops/attention.py", "tests/ops/test_attention.py"
PARTS, FORWARD, BACKWARD, SIZES = (
    f"staged/backends/gpu_family/attention/{name}.py" for name in ("parts", "forward", "backward", "sizes")
)
KERNELS = "tests/backends/cublas_cudnn/test_attention_kernels.py"
GRAPHS, CALLS, WAY = (
    f"staged/backends/cublas_cudnn/library/{name}.py" for name in ("attention_graphs", "attention_calls", "attention")
)
CUDNN = "tests/backends/cublas_cudnn/test_attention.py"

MUTANTS = (
    Mutant(
        "cuDNN's gradient of scores is multiplied by their logarithms, not by shares",
        GRAPHS,
        "CUDNN_POINTWISE_MUL, centred, shares",
        "CUDNN_POINTWISE_MUL, centred, logs",
        (CUDNN, "-k", "agree_with_eager and bfloat16"),
    ),
    Mutant(
        "cuDNN is shown columns in the place of rows",
        GRAPHS,
        "CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2",
        "CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3",
        (CUDNN, "-k", "agree_with_eager and causal"),
    ),
    Mutant(
        "cuDNN has no scale",
        CALLS,
        "literal(self.op.attrs['scale'], f32)",
        "literal(1.0, f32)",
        (CUDNN, "-k", "agree_with_eager and bfloat16"),
    ),
    Mutant(
        "cuDNN is given attention with a mask",
        WAY,
        'half is None or sizes is None or op.attrs["parts"]:',
        "half is None or sizes is None:",
        (CUDNN, "-k", "does_not_take"),
    ),
    Mutant(
        "a kernel's queries see the key after their own",
        PARTS,
        "key <= query if self.causal else None",
        "key <= query + 1 if self.causal else None",
        (KERNELS, "-k", "agree_with_eager and causal"),
    ),
    Mutant(
        "a kernel leaves out the keys of a block's last queries",
        FORWARD,
        "a.start + BLOCK if a.causal else None",
        "a.start if a.causal else None",
        (KERNELS, "-k", "agree_with_eager and causal"),
    ),
    Mutant(
        "what a kernel has summed is not scaled down where the maximum grows",
        FORWARD,
        'a.assign(mean[r][c], kept, "*")',
        'a.assign(mean[r][c], a.literal(1.0), "*")',
        (KERNELS, "-k", "dropout"),
    ),
    Mutant(
        "only the first head of a group has a part in the gradient of its keys",
        BACKWARD,
        "a.loop(name, 0, each.group)",
        "a.loop(name, 0, 1)",
        (KERNELS, "-k", "agree_with_eager and groups"),
    ),
    Mutant(
        "a kernel drops other shares than the composite",
        PARTS,
        "(row * bk + column).expr",
        "(row * bk + column + 1).expr",
        (KERNELS, "-k", "dropout"),
    ),
    Mutant(
        "a tile is overwritten while other warps read it",
        FORWARD,
        'a.barrier("the last tile has been read")',
        "pass",
        (KERNELS, "-k", "no_two_threads_meet", "--all"),
    ),
    Mutant(
        "a kernel's shares are read before all lanes have written them",
        FORWARD,
        "a.barrier(is_warp=True)",
        "pass",
        (KERNELS, "-k", "no_two_threads_meet", "--all"),
    ),
    Mutant(
        "a block takes more shared memory than there is",
        SIZES,
        "self.shared_bytes(rows) > self.gpu.largest_shared_bytes",
        "self.shared_bytes(rows) > 2 * self.gpu.largest_shared_bytes",
        (KERNELS, "-k", "fit_into_shared_memory"),
    ),
    Mutant(
        "a block of queries leaves out the last block of keys that it sees",
        ATTENTION,
        "(i * self.bq + (self.bq + self.bk - 1)) // self.bk",
        "(i * self.bq + (self.bq - 1)) // self.bk",
        (TESTS, "-k", "torchs and causal"),
    ),
    Mutant(
        "the reverse leaves out a block of queries that sees a block of keys",
        ATTENTION,
        "minimum((j * self.bk) // self.bq, self.nq)",
        "minimum((j * self.bk + self.bk) // self.bq, self.nq)",
        (TESTS, "-k", "torchs and causal"),
    ),
    Mutant(
        "the heads of a group overwrite the gradient of their keys",
        ATTENTION,
        "if self.own[which] != self.lead:",
        "if len(self.own[which]) != len(self.lead):",
        (TESTS, "-k", "torchs and groups"),
    ),
    Mutant(
        "the keys that fill up the last block are seen",
        ATTENTION,
        "ragged = self.nk * self.bk > self.cols",
        "ragged = False",
        (TESTS, "-k", "torchs and plain"),
    ),
    Mutant(
        "a query that sees no key has NaN",
        ATTENTION,
        "return top if self.mask is None else where(top == -math.inf, 0.0, top)",
        "return top",
        (TESTS, "-k", "sees_no_key"),
    ),
    Mutant(
        "all blocks drop the same shares",
        ATTENTION,
        "stream = ((n * self.nq + i) * self.nk + j) + 1",
        "stream = n + 1",
        (TESTS, "-k", "keeps_the_mean"),
    ),
    Mutant(
        "the cotangent of the sums of exponentials is lost",
        ATTENTION,
        "        offset = offset - ct_lse",
        "        offset = offset + 0 * ct_lse",
        (TESTS, "-k", "second or reverse"),
    ),
    Mutant(
        "bools of a layer's mask mean what they mean to the function",
        "staged/nn/attention.py",
        "return st.logical_not(array) if array.dtype == st.bool_ else array",
        "return array",
        ("tests/nn/test_transformer.py", "-k", "test_multihead_attention_is_torchs and cross"),
    ),
    Mutant(
        "the keys that a layer adds are hidden by its mask",
        "staged/nn/attention.py",
        "value=True if mask.dtype == st.bool_ else 0.0",
        "value=False if mask.dtype == st.bool_ else 0.0",
        ("tests/nn/test_transformer.py", "-k", "test_multihead_attention_is_torchs and more_keys"),
    ),
    Mutant(
        "a block of keys counts as whole where its last query alone sees all of it",
        ATTENTION,
        "minimum((i * self.bq + 1) // self.bk, seen)",
        "minimum((i * self.bq + self.bq) // self.bk, seen)",
        (TESTS, "-k", "causal"),
    ),
)
