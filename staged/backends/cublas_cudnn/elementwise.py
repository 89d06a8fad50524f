"""Parts without loops: a pack of neighbouring elements for each thread, or tiles that turn their operands around."""

from __future__ import annotations

from staged.backends.c_family.expr import Index, Infix, Name
from staged.backends.c_family.loops import address
from staged.backends.cublas_cudnn.mapping import Part
from staged.backends.cublas_cudnn.packs import Access, pack_name
from staged.backends.cublas_cudnn.statements import CudaStatements
from staged.backends.cublas_cudnn.tiles import ROWS, TILE, Tiles
from staged.ir.loops import Affine, ArrayRef, Axis, Load, Store


class ElementwiseParts(CudaStatements):
    """Writes parts whose items are single elements."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.ready: dict[tuple[ArrayRef, Affine], Index] = {}
        """Elements that have been read together with others: where they are now."""
        self.waiting: dict[Store, Index] = {}
        """Elements that will be written together with others: where they wait."""

    def load(self, s: Load, inline: bool) -> None:
        place = self.ready.get((s.array, s.index)) if not s.guards else None
        if place is None:
            super().load(s, inline)
        else:
            self.bind(s.target, place, False, inline, False)

    def store(self, s: Store) -> None:
        place = self.waiting.get(s)
        if place is None:
            super().store(s)
        else:
            self.w.line(f"{place} = {self.operand(s.value).expr};")

    # ---- packs ----

    def packed_body(self, part: Part, axis: Axis, width: int, packs: frozenset[Access]) -> None:
        """`width` neighbours along `axis`, whose first is what the axis' name holds."""
        w, first = self.w, self.axes[axis]
        u = self.names.fresh("u")
        written: list[tuple[Store, str, str]] = []
        for s in part.body:
            if not isinstance(s, Load | Store) or s not in packs:
                continue
            if isinstance(s, Load) and (s.array, s.index) in self.ready:
                continue
            kind = pack_name(s.array.dtype, width)
            self.need(kind)
            name = self.names.fresh(f"{s.array.name}_{width}")
            element = Index(Name(f"{name}.at"), Name(u))
            place = str(address(self.arrays[s.array], self.index(s.index)))
            if isinstance(s, Load):
                w.line(f"const st_{kind} {name} = *(const st_{kind} *)({place});")
                self.ready[s.array, s.index] = element
            else:
                w.line(f"st_{kind} {name};")
                self.waiting[s] = element
                written.append((s, name, f"*(st_{kind} *)({place})"))
        w.line("ST_UNROLLED")
        with self.block(f"for (int {u} = 0; {u} < {width}; ++{u})"):
            self.axes[axis] = Infix("+", first, Name(u))
            self.body(part.body)
        for _, name, place in written:
            w.line(f"{place} = {name};")
        self.ready.clear()
        self.waiting.clear()

    # ---- tiles ----

    def tile_part(self, part: Part, tiles: Tiles) -> None:
        """A tile for each block: what lies crosswise is read in its own direction first."""
        w = self.w
        across, along = -(-tiles.across.extent // TILE), -(-tiles.along.extent // TILE)
        tile, column, row = (self.names.fresh(name) for name in ("tile", "column", "row"))
        w.line(f"const int64_t {tile} = blockIdx.x;")
        w.line(f"const int64_t {column} = threadIdx.x % {TILE}, {row} = threadIdx.x / {TILE};")
        first_across, first_along = self.names.fresh("first_row"), self.names.fresh("first_column")
        w.line(f"const int64_t {first_across} = {tile} / {along} % {across} * {TILE};")
        w.line(f"const int64_t {first_along} = {tile} % {along} * {TILE};")
        if tiles.batch:
            number = self.names.fresh("t")
            w.line(f"const int64_t {number} = {tile} / {across * along};")
            self.number_axes(tiles.batch, number)
        turns = {}
        for s in tiles.loads:
            if (s.array, s.index) in turns:
                continue
            name = self.names.fresh(f"{s.array.name}_tile")
            # One more than a power of two: the elements of a column lie in different banks.
            w.line(f"__shared__ {s.array.dtype.c_name} {name}[{TILE}][{TILE + 1}];")
            turns[s.array, s.index] = name
        r = self.names.fresh("r")
        header = f"for (int64_t {r} = {row}; {r} < {TILE}; {r} += {ROWS})"
        with self.block(header):
            self.tile_axes(tiles, f"{first_across} + {column}", f"{first_along} + {r}")
            with self.block(self.inside_tile(tiles)):
                for s in tiles.loads:
                    if name := turns.get((s.array, s.index), ""):
                        w.line(f"{name}[{r}][{column}] = {Index(self.arrays[s.array], self.index(s.index))};")
        w.line("__syncthreads();")
        with self.block(header):
            self.tile_axes(tiles, f"{first_across} + {r}", f"{first_along} + {column}")
            for key, name in turns.items():
                self.ready[key] = Index(Index(Name(name), Name(column)), Name(r))
            with self.block(self.inside_tile(tiles)):
                self.body(part.body)
        self.ready.clear()

    def tile_axes(self, tiles: Tiles, across: str, along: str) -> None:
        for axis, value in ((tiles.across, across), (tiles.along, along)):
            name = self.names.fresh(axis.name)
            self.w.line(f"const int64_t {name} = {value};")
            self.axes[axis] = Name(name)

    def inside_tile(self, tiles: Tiles) -> str:
        """The condition under which a tile at the edge has an element; nothing where sizes divide."""
        ragged = [axis for axis in (tiles.across, tiles.along) if axis.extent % TILE]
        terms = " && ".join(f"{self.axes[axis]} < {axis.extent}" for axis in ragged)
        return f"if ({terms})" if terms else ""
