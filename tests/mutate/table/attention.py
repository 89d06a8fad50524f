"""Planted faults of attention in blocks."""

from tests.mutate.mutant import Mutant, Text

ATTENTION, TESTS = "staged/library/sequences/attention.py", "tests/ops/test_attention.py"
PARTS, FORWARD, BACKWARD, SIZES = (
    f"staged/backends/gpu/attention/{name}.py" for name in ("parts", "forward", "backward", "sizes")
)
KERNELS = "tests/backends/cublas_cudnn/test_attention_kernels.py"
GRAPHS, CALLS, WAY = (
    f"staged/backends/cublas_cudnn/library/{name}.py" for name in ("attention_graphs", "attention_calls", "attention")
)
CUDNN = "tests/backends/cublas_cudnn/test_attention.py"

MUTANTS = (
    Mutant(
        "cuDNN's gradient of scores is multiplied by their logarithms, not by shares",
        "backends.cublas_cudnn.library.attention_graphs:BACKWARD",
        Text("CUDNN_POINTWISE_MUL, centred, shares"),
        "CUDNN_POINTWISE_MUL, centred, logs",
        (CUDNN, "-k", "agree_with_eager and bfloat16"),
    ),
    Mutant(
        "cuDNN is shown columns in the place of rows",
        "backends.cublas_cudnn.library.attention_graphs:ATTENTION",
        Text("CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2"),
        "CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3",
        (CUDNN, "-k", "agree_with_eager and causal"),
    ),
    Mutant(
        "cuDNN has no scale",
        "backends.cublas_cudnn.library.attention_calls:_Call.write",
        Text("literal(self.op.attrs['scale'], f32)"),
        "literal(1.0, f32)",
        (CUDNN, "-k", "agree_with_eager and bfloat16"),
    ),
    Mutant(
        "cuDNN is given attention with a mask",
        "backends.cublas_cudnn.library.attention:_taken",
        'half is None or sizes is None or op.attrs["parts"]',
        "half is None or sizes is None",
        (CUDNN, "-k", "does_not_take"),
    ),
    Mutant(
        "a kernel's queries see the key after their own",
        "backends.gpu.attention.parts:AttentionCode.score",
        "key <= query",
        "key <= query + 1",
        (KERNELS, "-k", "agree_with_eager and causal"),
    ),
    Mutant(
        "a kernel leaves out the keys of a block's last queries",
        "backends.gpu.attention.forward:forward_kernel",
        "a.start + BLOCK",
        "a.start",
        (KERNELS, "-k", "agree_with_eager and causal"),
    ),
    Mutant(
        "what a kernel has summed is not scaled down where the maximum grows",
        "backends.gpu.attention.forward:forward_kernel",
        'a.assign(mean[r][c], kept, "*")',
        'a.assign(mean[r][c], a.literal(1.0), "*")',
        (KERNELS, "-k", "dropout"),
    ),
    Mutant(
        "only the first head of a group has a part in the gradient of its keys",
        "backends.gpu.attention.backward:_query_heads",
        "a.loop(name, 0, each.group)",
        "a.loop(name, 0, 1)",
        (KERNELS, "-k", "agree_with_eager and groups"),
    ),
    Mutant(
        "a kernel drops other shares than the composite",
        "backends.gpu.attention.parts:AttentionCode.is_kept",
        "row * bk + column",
        "row * bk + column + 1",
        (KERNELS, "-k", "dropout"),
    ),
    Mutant(
        "a tile is overwritten while other warps read it",
        "backends.gpu.attention.forward:forward_kernel",
        'a.barrier("the last tile has been read")',
        "pass",
        (KERNELS, "-k", "no_two_threads_meet", "--all"),
    ),
    Mutant(
        "a kernel's shares are read before all lanes have written them",
        "backends.gpu.attention.forward:forward_kernel",
        "a.barrier(is_warp=True)",
        "pass",
        (KERNELS, "-k", "no_two_threads_meet", "--all"),
    ),
    Mutant(
        "a block takes more shared memory than there is",
        "backends.gpu.attention.sizes:AttentionSizes.rows",
        "self.gpu.largest_shared_bytes",
        "2 * self.gpu.largest_shared_bytes",
        (KERNELS, "-k", "fit_into_shared_memory"),
    ),
    Mutant(
        "a block of queries leaves out the last block of keys that it sees",
        "library.sequences.attention:_Plan.ends",
        "self.bq + self.bk",
        "self.bq",
        (TESTS, "-k", "torchs and causal"),
    ),
    Mutant(
        "the reverse leaves out a block of queries that sees a block of keys",
        "library.sequences.attention:_Plan.begins",
        "j * self.bk",
        "j * self.bk + self.bk",
        (TESTS, "-k", "torchs and causal"),
    ),
    Mutant(
        "the heads of a group overwrite the gradient of their keys",
        "library.sequences.attention:_Plan.added_to_keys",
        "self.own[which] != self.lead",
        "len(self.own[which]) != len(self.lead)",
        (TESTS, "-k", "torchs and groups"),
    ),
    Mutant(
        "the keys that fill up the last block are seen",
        "library.sequences.attention:_Plan.last_key",
        "self.nk * self.bk != self.cols",
        "False",
        (TESTS, "-k", "torchs and plain"),
    ),
    Mutant(
        "a query that sees no key has NaN",
        "library.sequences.attention:_Plan.finite",
        "where(top == -math.inf, 0.0, top) if self.may_see_nothing else top",
        "top",
        (TESTS, "-k", "sees_no_key"),
    ),
    Mutant(
        "all blocks drop the same shares",
        "library.sequences.attention:_Plan.dropped",
        "(head * self.nq + i) * self.nk + j",
        "head",
        (TESTS, "-k", "keeps_the_mean"),
    ),
    Mutant(
        "the cotangent of the sums of exponentials is lost",
        "library.sequences.attention:_vjp",
        "offset - ct_lse",
        "offset + 0 * ct_lse",
        (TESTS, "-k", "second or reverse"),
    ),
    Mutant(
        "bools of a layer's mask mean what they mean to the function",
        "nn.attention:allowed",
        "st.logical_not(array) if array.dtype == st.bool_ else array",
        "array",
        ("tests/nn/test_transformer.py", "-k", "test_multihead_attention_is_torchs and cross"),
    ),
    Mutant(
        "the keys that a layer adds are hidden by its mask",
        "nn.attention:MultiheadAttention.forward",
        "True if mask.dtype == st.bool_ else 0.0",
        "False if mask.dtype == st.bool_ else 0.0",
        ("tests/nn/test_transformer.py", "-k", "test_multihead_attention_is_torchs and more_keys"),
    ),
    Mutant(
        "a block of keys counts as whole where its last query alone sees all of it",
        "library.sequences.attention:_Plan.whole",
        "i * self.bq + 1",
        "i * self.bq + self.bq",
        (TESTS, "-k", "causal"),
    ),
)
