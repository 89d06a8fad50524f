"""Planted faults of attention in blocks."""

from tests.mutate.mutant import Mutant

ATTENTION, TESTS = "staged/ops/attention.py", "tests/ops/test_attention.py"

MUTANTS = (
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
)
