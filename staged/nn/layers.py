"""Layers with torch's names, parameters, defaults, initialisation and layouts."""

from __future__ import annotations

from typing import Any

import staged as st
from staged.nn.module import Module
from staged.nn.parameters import Parameter, biased, check_dtype, check_inplace, check_probability, check_sizes, uniform


class Linear(Module):
    """`y = x @ weight.T + bias`.

    Shapes: x (..., in_features); weight (out_features, in_features); bias (out_features,); y (..., out_features).
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, dtype: Any = st.f32) -> None:
        check_sizes("Linear", 0, in_features=in_features, out_features=out_features)
        self.in_features = in_features
        self.out_features = out_features
        self.weight = uniform((out_features, in_features), in_features, dtype)
        self.bias = uniform((out_features,), in_features, dtype) if bias else None

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"

    def forward(self, x: Any) -> Any:
        """Apply the affine map to the last axis of `x`."""
        check_dtype("Linear", x, self.weight)
        if not x.shape or x.shape[-1] != self.in_features:
            raise st.ShapeError(
                f"Linear has {self.in_features} input features, its input is {x.shape}",
                where=st.here(),
                hint=f"make it `Linear({x.shape[-1] if x.shape else 1}, {self.out_features})`, or reshape the input",
            )
        y = x @ st.matrix_transpose(self.weight.value)
        return biased(y, None if self.bias is None else self.bias.value)


class Flatten(Module):
    """Join the axes from `start_dim` to `end_dim` into one."""

    _shown = ("start_dim", "end_dim")

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Any) -> Any:
        """Return `x` with the axes joined."""
        return st.flatten(x, self.start_dim, self.end_dim)


class Dropout(Module):
    """In training, zero each element with probability `p` and scale the others by 1 / (1 - p).

    The mask comes from `generator`, by default that of the thread. Source: Srivastava et al., 2014.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False, *, generator: Any = None) -> None:
        check_probability("Dropout", p)
        check_inplace("Dropout", inplace)
        self.p = p
        self.generator = generator

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them; `inplace` is always False."""
        return f"p={self.p}, inplace=False"

    def forward(self, x: Any) -> Any:
        """Drop elements in training; return `x` unchanged in evaluation."""
        return st.dropout(x, self.p, training=self.training, generator=self.generator)


def _table(name: str, count: int, width: int, padding_idx: int | None, dtype: Any) -> tuple[int | None, Parameter]:
    """(`padding_idx` counted from the front, rows from N(0, 1), of which that one is zeros)."""
    check_sizes(name, 0, num_embeddings=count, embedding_dim=width)
    table = st.random.normal((count, width), dtype=dtype)
    if padding_idx is not None:
        if not -count <= padding_idx < count:
            raise st.ArgumentError(f"{name}: padding_idx is one of {count} rows, got {padding_idx}", where=st.here())
        padding_idx %= count
        table = st.where(st.arange(count)[:, None] == padding_idx, 0.0, table)
    return padding_idx, Parameter(table)


class Embedding(Module):
    """Rows of a table, by index; the table starts from N(0, 1) as in torch.

    The row `padding_idx` (negative counts from the end) starts as zeros and is not trained: look-ups of it pass no
    gradient. Shapes: indices (...) integer, 0 <= index < num_embeddings; result (..., embedding_dim).
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *, dtype: Any = st.f32
    ) -> None:
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx, self.weight = _table("Embedding", num_embeddings, embedding_dim, padding_idx, dtype)

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"

    def forward(self, indices: Any) -> Any:
        """Look up; an index out of range stops the program with the line."""
        rows = st.take(self.weight.value, indices, axis=0)
        if self.padding_idx is None:
            return rows
        given = st.asarray(indices)
        is_padding = (given == self.padding_idx) | (given == self.padding_idx - self.num_embeddings)
        return st.where(st.expand_dims(is_padding, -1), st.stop_gradient(rows), rows)


class EmbeddingBag(Module):
    """The sum, mean or maximum of the rows of a table at the indices of each bag; the table starts from N(0, 1).

    Shapes: indices (bags, n), or (n,) with `offsets` (bags,), the place where each bag begins; result (bags,
    embedding_dim). Rows of `padding_idx` are in no bag, and not trained. See `st.embedding_bag`.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        dtype: Any = st.f32,
    ) -> None:
        if mode not in ("sum", "mean", "max"):
            raise st.ArgumentError(f"EmbeddingBag: mode is 'sum', 'mean', 'max', got {mode!r}", where=st.here())
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.mode = mode
        self.include_last_offset = include_last_offset
        self.padding_idx, self.weight = _table("EmbeddingBag", num_embeddings, embedding_dim, padding_idx, dtype)

    def extra_repr(self) -> str:
        """The constructor's arguments, as `repr` shows them."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}{padding}"

    def forward(self, indices: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """Look up and reduce; an index out of range stops the program with the line."""
        return st.embedding_bag(
            indices,
            self.weight.value,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )
