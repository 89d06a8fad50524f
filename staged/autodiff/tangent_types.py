"""Types of tangents and cotangents: those of a tensor are tensors like it, those of a frame are frames of its float
fields.
"""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.function_pool import FunctionPool
from staged.ir.nodes import FrameRecord, Op, Value
from staged.ir.structure import FRAME_NULL, SEQUENCE_ZEROS
from staged.ir.types import FrameType, SequenceType, TensorType, Type
from staged.ir.zeros import zeros_of


class TangentTypes:
    """The types of tangents and cotangents, for the types that have them."""

    def __init__(self, pool: FunctionPool) -> None:
        self.pool = pool
        self._records: dict[str, str] = {}
        self._has: dict[str, bool] = {}

    def has(self, type: Type) -> bool:
        """Return whether values of this type have derivatives: floats, sequences of them, frames with a float somewhere
        inside.
        """
        while isinstance(type, SequenceType):
            type = type.element
        if isinstance(type, FrameType):
            if type.name not in self._has:
                self._has[type.name] = self._has_floats(type.name)
            return self._has[type.name]
        return type.dtype.is_inexact

    def type(self, type: Type) -> Type:
        """The type of the tangents and cotangents of values of a type that has them."""
        if isinstance(type, SequenceType):
            element = self.type(type.element)
            return SequenceType(element, type.bound)
        return FrameType(self._record(type.name)) if isinstance(type, FrameType) else type

    def fields(self, frame: Type) -> list[int]:
        """The numbers of a frame's fields that have derivatives."""
        assert isinstance(frame, FrameType)
        record = self.pool.frames[frame.name]
        return [number for number, (_, type) in enumerate(record.fields) if self.has(type)]

    def zeros(self, builder: Builder, like: Value, op: Op) -> Value:
        """The tangent or cotangent zero of `like`, placed and located as `op`; a sequence has the lengths of `like`.

        Exact: +0.0, the zero to which whatever is added keeps its bits, but for -0.0.
        """
        wanted = self.type(like.type)
        if isinstance(wanted, SequenceType):
            return builder.op(SEQUENCE_ZEROS, [like], [wanted], device=op.device, where=op.where).result
        if isinstance(wanted, FrameType):
            return builder.op(FRAME_NULL, [], [wanted], device=op.device, where=op.where).result
        return zeros_of(builder, wanted, op.device, op.where)

    def _record(self, name: str) -> str:
        """The record of the tangents of the frames `name`."""
        if name not in self._records:
            made = self._records[name] = self.pool.fresh_frame(f"d_{name}")
            fields = self.pool.frames[name].fields
            kept = tuple((f"d_{field}", self.type(type)) for field, type in fields if self.has(type))
            self.pool.add_frame(FrameRecord(made, kept))
        return self._records[name]

    def _has_floats(self, name: str) -> bool:
        reached, pending = {name}, [name]
        while pending:
            for _, type in self.pool.frames[pending.pop()].fields:
                while isinstance(type, SequenceType):
                    type = type.element
                if isinstance(type, TensorType) and type.dtype.is_inexact:
                    return True
                if isinstance(type, FrameType) and type.name not in reached:
                    reached.add(type.name)
                    pending.append(type.name)
        return False


def tangent_types(pool: FunctionPool) -> TangentTypes:
    """The types of tangents and cotangents in the programs of a pool."""
    made = pool.memo.setdefault("tangent types", None) or TangentTypes(pool)
    pool.memo["tangent types"] = made
    assert isinstance(made, TangentTypes)
    return made
