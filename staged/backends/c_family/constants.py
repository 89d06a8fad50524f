"""Small constant arrays as C tables."""

from __future__ import annotations

from staged.backends.c_family.expr import literal
from staged.backends.c_family.writer import Writer
from staged.ir.buffers import Buffer


def emit_constant_table(w: Writer, name: str, buffer: Buffer) -> None:
    """`static const float name[6] = {...};`, eight elements to a line."""
    producer = buffer.values[0].producer
    assert producer is not None
    dtype = buffer.type.dtype
    value = producer.attrs["value"]
    values = value if isinstance(value, tuple) else (value,) * buffer.type.size
    texts = [str(literal(item, dtype)) for item in values]
    if not texts:
        texts = [str(literal(0, dtype))]  # C has no empty arrays
    with w.block(f"static const {dtype.c_name} {name}[{len(texts)}] =", ";"):
        for start in range(0, len(texts), 8):
            w.line(", ".join(texts[start : start + 8]) + ",")
