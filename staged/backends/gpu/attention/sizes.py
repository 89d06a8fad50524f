"""The sizes of attention's kernels: what the op has, and the blocks that these cut it into.

A warp has `rows` rows of its own, of queries (or of keys, for their gradients); each of its lanes takes one of the
`tile` keys (or queries) that the block reads into shared memory at a time.

Tested by `tests/backends/cublas_cudnn/test_attention_kernels.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from staged.ir.machine import Gpu
from staged.ir.nodes import Op
from staged.ir.types import DType, TensorType, f32, f64

FORWARD, BACKWARD_QUERIES, BACKWARD_KEYS = "attention_by_kernel", "attention_d_query", "attention_d_key"
"""The kernels: the result, the gradient by the queries, those by keys and values."""
WARPS = 4
"""Warps of a block."""
MOST_ROWS = 8
"""Rows of a warp: more of them share what is read from shared memory, fewer leave registers."""
MOST_TOTALS = {4: 32, 8: 16}
"""By bytes of a number: sums that a lane has in registers at most."""
SMALL = 1 << 30
"""Elements of one head of an operand up to which indices inside it are `int`."""

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class AttentionSizes:
    """The sizes of one attention on a device."""

    kernel: str
    dtype: DType
    """The dtype of sums. Operands, and then results, may be f16 or bf16."""
    lead: Sizes
    k_lead: Sizes
    v_lead: Sizes
    mask: TensorType | None
    queries: int
    keys: int
    width: int
    """Features of a query and of a key."""
    depth: int
    """Features of a value."""
    gpu: Gpu

    @staticmethod
    def of(kernel: str, op: Op, gpu: Gpu) -> AttentionSizes:
        """The sizes of an op that takes q, k, v and the rest of the composite's operands."""
        q, k, v, *rest = (operand.tensor for operand in op.operands)
        mask = rest[0] if "m" in op.attrs["parts"] else None
        (*lead, queries, width), (*k_lead, keys, _), (*v_lead, _, depth) = map(_static, (q, k, v))
        result = op.results[0].tensor.dtype
        return AttentionSizes(
            kernel,
            f32 if result.is_half else result,
            tuple(lead),
            tuple(k_lead),
            tuple(v_lead),
            mask,
            queries,
            keys,
            width,
            depth,
            gpu,
        )

    # ---- blocks ----

    @property
    def lanes(self) -> int:
        """Numbers of a pack, which is read from shared memory at once."""
        return self.gpu.access_bytes // self.dtype.size

    @property
    def tile(self) -> int:
        """Keys, or queries, in shared memory at a time: one for each lane of a warp."""
        return self.gpu.warp

    @property
    def of_keys(self) -> bool:
        """Return whether blocks have rows of keys, and go through the queries."""
        return self.kernel == BACKWARD_KEYS

    @property
    def extent(self) -> int:
        """Rows that blocks share out."""
        return self.keys if self.of_keys else self.queries

    @property
    def heads(self) -> int:
        """Blocks with the same rows: one for each head of the queries, or of the keys."""
        return math.prod(self.k_lead if self.of_keys else self.lead)

    def padded(self, features: int) -> int:
        """Features of a row that is multiplied: whole packs."""
        return -(-features // self.lanes) * self.lanes

    def columns(self, features: int) -> int:
        """Columns of a lane."""
        return -(-features // self.gpu.warp)

    def pitch(self, features: int, is_multiplied: bool) -> int:
        """Elements of a row of a tile. A pack more than a multiple of the banks: rows lie in different ones."""
        return self.columns(features) * self.gpu.warp + (self.lanes if is_multiplied else 0)

    def shared_bytes(self, rows: int) -> int:
        """Shared memory of a block whose warps have so many rows."""
        block = rows * WARPS
        is_forward = self.kernel == FORWARD
        own = block * (self.padded(self.width) + (0 if is_forward else self.padded(self.depth)))
        tiles = self.tile * (self.pitch(self.width, True) + self.pitch(self.depth, not is_forward))
        shares = block * self.tile * (2 if self.of_keys else 1)
        return (own + tiles + shares) * self.dtype.size

    def totals(self, rows: int) -> int:
        """Sums that a lane has in registers."""
        found = {FORWARD: [self.depth], BACKWARD_QUERIES: [self.width], BACKWARD_KEYS: [self.width, self.depth]}
        return rows * sum(map(self.columns, found[self.kernel]))

    @cached_property
    def rows(self) -> int:
        """Rows of a warp; 0 if there is no room for one."""
        rows = MOST_ROWS
        while rows and (
            self.shared_bytes(rows) > self.gpu.largest_shared_bytes
            or rows > 1
            and (self.totals(rows) > MOST_TOTALS[self.dtype.size] or (rows // 2) * WARPS >= self.extent)
        ):
            rows //= 2
        return rows

    @property
    def block(self) -> int:
        """Rows of a block."""
        return self.rows * WARPS

    @property
    def blocks(self) -> int:
        """Blocks of a head."""
        return -(-self.extent // self.block)

    def why_not(self) -> str:
        """The reason why there is no such kernel; empty where there is one."""
        if self.dtype not in (f32, f64):
            return f"numbers are {self.dtype}"
        if not self.gpu.has_warps:
            return "the device has no warps"
        if not self.rows:
            return f"heads of {self.width} and {self.depth} features do not fit into a block's shared memory"
        if self.heads * self.blocks > self.gpu.blocks:
            return "more blocks than a launch can have"
        if max(self.queries, self.keys) * max(self.width, self.depth) > SMALL:
            return "a head has more elements than an index of 32 bits counts"
        if self.kernel != FORWARD and self.k_lead != self.v_lead:
            return "keys and values have different leading axes"
        return ""


@dataclass(frozen=True, slots=True)
class Groups:
    """Neighbouring leading axes as one: `own` elements of the keys, each for `group` of the queries."""

    own: int
    group: int


def groups_of(own: Sequence[int], lead: Sequence[int]) -> tuple[Groups, ...]:
    """The leading axes of keys beside those of queries, as few as say it."""
    own = (1,) * (len(lead) - len(own)) + tuple(own)
    found: list[Groups] = []
    for extent, whole in zip(own, lead, strict=True):
        new = Groups(extent, whole // extent)
        if found and (found[-1].group == 1 or new.own == 1):
            last = found.pop()
            new = Groups(last.own * new.own, last.group * new.group)
        found.append(new)
    return tuple(found)


def _static(type: TensorType) -> list[int]:
    return [int(extent) for extent in type.shape]  # type: ignore[arg-type]  # attention takes no other sizes
