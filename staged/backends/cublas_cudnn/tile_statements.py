"""Parts whose operands lie crosswise: a tile for each block, turned around in shared memory."""

from __future__ import annotations

from staged.backends.c_family.expr import Index, Name
from staged.backends.cublas_cudnn.statements import CudaStatements
from staged.backends.gpu_family.mapping import Part
from staged.backends.gpu_family.tiles import Tiles


class TileStatements(CudaStatements):
    """Writes parts in tiles."""

    def tile_part(self, part: Part, tiles: Tiles) -> None:
        """A tile for each block: what lies crosswise is read in its own direction first."""
        w = self.w
        across, along, side = tiles.across.outer.extent, tiles.along.outer.extent, tiles.along.size
        tile, column, row = (self.names.fresh(name) for name in ("tile", "column", "row"))
        type = self.index_type
        w.line(f"const {type} {tile} = blockIdx.x;")
        w.line(f"const {type} {column} = threadIdx.x % {side}, {row} = threadIdx.x / {side};")
        first_across, first_along = self.names.fresh("first_row"), self.names.fresh("first_column")
        w.line(f"const {type} {first_across} = {tile} / {along} % {across} * {side};")
        w.line(f"const {type} {first_along} = {tile} % {along} * {side};")
        if tiles.batch:
            number = self.names.fresh("t")
            w.line(f"const {type} {number} = {tile} / {across * along};")
            self.number_axes(tiles.batch, number)
        turns = {}
        for s in tiles.loads:
            if (s.array, s.index) in turns:
                continue
            name = self.names.fresh(f"{s.array.name}_tile")
            # One more than a power of two: the elements of a column lie in different banks.
            w.line(f"__shared__ {s.array.dtype.c_name} {name}[{side}][{side + 1}];")
            turns[s.array, s.index] = name
        r = self.names.fresh("r")
        header = f"for ({type} {r} = {row}; {r} < {side}; {r} += {tiles.rows})"
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
        for split, value in ((tiles.across, across), (tiles.along, along)):
            name = self.names.fresh(split.axis.name)
            self.w.line(f"const {self.index_type} {name} = {value};")
            self.axes[split.axis] = Name(name)

    def inside_tile(self, tiles: Tiles) -> str:
        """The condition under which a tile at the edge has an element; nothing where sizes divide."""
        ragged = [split.axis for split in (tiles.across, tiles.along) if split.axis.extent % split.size]
        terms = " && ".join(f"{self.axes[axis]} < {axis.extent}" for axis in ragged)
        return f"if ({terms})" if terms else ""
