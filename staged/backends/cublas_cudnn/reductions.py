"""Device functions by which threads that share an item bring their totals together, always in the same order.

| team   | threads of an item                        | how                                                           |
|--------|-------------------------------------------|---------------------------------------------------------------|
| warp   | the 32 of a warp                          | shuffles, in pairs of pairs: every thread has the same bits   |
| block  | a whole block of 32, 64, 128, ... threads | each warp for itself, then the warps' totals, which all fetch |
| column | those with one place in each of its warps | through shared memory, half of the warps to the other half    |

`st_block_sum_f32(total, parts)` gives the total of all; `st_block_argmax_f32(&best, &place, bests, places)` changes
what the pointers name. `parts` and the like are shared memory of `parts_of(team, threads)` elements, which no other
call uses.
"""

from __future__ import annotations

from staged.code.expr import Conditional, Name
from staged.code.operators import ARITHMETIC, EXTREMES
from staged.code.scalars import beats, spell
from staged.code.support.library import Snippet, SupportFunction, made_of
from staged.errors import UnsupportedError
from staged.ir.declaration import DECLARED, Declaration
from staged.ir.types import ALL_DTYPES, DType


def reduction_function(name: str) -> Snippet | None:
    """A reduction; None if `name` is none.

    Exact: every thread reads the same bits; NaN wins an extreme, of equals the lower place.
    """
    team, _, rest = name.partition("_")
    op_name, _, dtype_name = rest.rpartition("_")
    dtype = next((each for each in ALL_DTYPES if each.name == dtype_name), None)
    op = DECLARED.get(op_name)
    if team not in ("wins", "warp", "block", "column") or dtype is None or op is None or op.combine is None:
        return None
    if team == "wins":
        return _wins_function(name, op.combine.name, dtype)
    needed = (f"warp_{rest}",) if team == "block" else ()
    if op.is_position:
        return made_of(name, _place_function(team, op, dtype), needs=(f"wins_{rest}", *needed))
    return made_of(name, _total_function(team, op, op.combine.name, dtype), needs=needed)


def _wins_function(name: str, combine: str, dtype: DType) -> Snippet:
    """The comparison behind argmax and argmin (`wins_argmax_f32`)."""
    t, sign = dtype.c_name, EXTREMES[combine]
    nan = ""
    if dtype.is_float:
        nan = (
            "    if (x != x || best != best) {\n"
            "        return x != x && (best == best || place < best_place);  // the first NaN\n"
            "    }\n"
        )
    definition = (
        f"({t} x, int64_t place, {t} best, int64_t best_place) {{\n"
        "    if (place < 0 || best_place < 0) {\n"
        "        return place >= 0;\n"
        "    }\n"
        f"{nan}"
        f"    return x {sign} best || (x == best && place < best_place);\n"
        "}\n"
    )
    comment = "// Whether x at `place` comes before `best`; a place of -1 has nothing.\n"
    return made_of(name, SupportFunction("bool", f"st_{name}", definition, comment=comment))


def _shuffled(dtype: DType, x: str) -> str:
    """The value of the lane `step` away."""
    if dtype.is_bool:
        return f"__shfl_xor_sync(0xffffffffu, (int){x}, step) != 0"
    if dtype.size < 4:
        return f"({dtype.c_name})__shfl_xor_sync(0xffffffffu, (int){x}, step)"
    if dtype.is_integer and dtype.size == 8:
        wide = "long long" if dtype.kind == "i" else "unsigned long long"
        return f"({dtype.c_name})__shfl_xor_sync(0xffffffffu, ({wide}){x}, step)"
    return f"__shfl_xor_sync(0xffffffffu, {x}, step)"


def _combined(combine: str, dtype: DType) -> str:
    """The variables `x` and `other` combined."""
    x, other = Name("x"), Name("other")

    def need(snippet: str) -> None:
        raise UnsupportedError(
            f"teams of threads cannot combine totals by `{combine}`, which needs `{snippet}`",
            hint="spell its `combine` without support functions",
        )

    if combine in EXTREMES and not dtype.is_bool:
        return str(Conditional(beats(combine, dtype, other, x), other, x))
    if combine in ARITHMETIC and dtype.is_integer:
        unsigned = f"uint{8 * max(4, dtype.size)}_t"
        return f"({dtype.c_name})(({unsigned})x {ARITHMETIC[combine]} ({unsigned})other)"
    return str(spell(combine, [dtype, dtype], dtype, [x, other], {}, need))


def _total_function(team: str, op: Declaration, combine: str, dtype: DType) -> SupportFunction:
    t, name, noun = dtype.c_name, f"st_{team}_{op.name}_{dtype}", op.noun or op.name
    combined = f"        x = {_combined(combine, dtype)};\n    }}\n    return x;\n}}\n"
    fetched = f"        const {t} other = {_shuffled(dtype, 'x')};\n"
    if team == "warp":
        definition = f"({t} x) {{\n    {_STEPS}{fetched}{combined}"
        comment = f"// The {noun} of a warp's numbers, the same bits in every lane.\n"
        return SupportFunction(t, name, definition, comment=comment)
    if team == "block":
        warp = f"st_warp_{op.name}_{dtype}"
        definition = (
            f"({t} x, {t} *parts) {{\n"
            f"    x = {warp}(x);\n"
            "    if (threadIdx.x % 32 == 0) {\n"
            "        parts[threadIdx.x / 32] = x;\n"
            "    }\n"
            "    __syncthreads();\n"
            f"    {_WARPS}"
            "    x = parts[threadIdx.x % warps];\n"
            f"    {_STEPS_OF_WARPS}"
            f"{fetched}{combined}"
        )
        comment = f"// The {noun} of a block's numbers, the same bits in every thread.\n"
        return SupportFunction(t, name, definition, (warp,), comment)
    definition = (
        f"({t} x, {t} *parts) {{\n"
        "    parts[threadIdx.x] = x;\n"
        "    __syncthreads();\n"
        f"    {_HALVES}"
        f"            const {t} other = parts[threadIdx.x + half];\n"
        f"            x = {_combined(combine, dtype)};\n"
        "            parts[threadIdx.x] = x;\n"
        "        }\n"
        "        __syncthreads();\n"
        "    }\n"
        "    return parts[threadIdx.x % 32];\n"
        "}\n"
    )
    comment = f"// The {noun} of the numbers of a column, which has one thread in each warp of the block.\n"
    return SupportFunction(t, name, definition, comment=comment)


def _place_function(team: str, op: Declaration, dtype: DType) -> SupportFunction:
    t, name, wins = dtype.c_name, f"st_{team}_{op.name}_{dtype}", f"st_wins_{op.name}_{dtype}"
    word = op.noun
    taken = (
        f"        if ({wins}(x, at, *best, *place)) {{\n"
        "            *best = x;\n"
        "            *place = at;\n"
        "        }\n"
        "    }\n"
        "}\n"
    )
    fetched = (
        f"        const {t} x = {_shuffled(dtype, '*best')};\n"
        "        const int64_t at = (int64_t)__shfl_xor_sync(0xffffffffu, (long long)*place, step);\n"
    )
    if team == "warp":
        definition = f"({t} *best, int64_t *place) {{\n    {_STEPS}{fetched}{taken}"
        return SupportFunction("void", name, definition, (wins,), f"// The {word} of a warp's numbers and its place.\n")
    if team == "block":
        warp = f"st_warp_{op.name}_{dtype}"
        definition = (
            f"({t} *best, int64_t *place, {t} *bests, int64_t *places) {{\n"
            f"    {warp}(best, place);\n"
            "    if (threadIdx.x % 32 == 0) {\n"
            "        bests[threadIdx.x / 32] = *best;\n"
            "        places[threadIdx.x / 32] = *place;\n"
            "    }\n"
            "    __syncthreads();\n"
            f"    {_WARPS}"
            "    *best = bests[threadIdx.x % warps];\n"
            "    *place = places[threadIdx.x % warps];\n"
            f"    {_STEPS_OF_WARPS}"
            f"{fetched}{taken}"
        )
        comment = f"// The {word} of a block's numbers and its place.\n"
        return SupportFunction("void", name, definition, (warp, wins), comment)
    definition = (
        f"({t} *best, int64_t *place, {t} *bests, int64_t *places) {{\n"
        "    bests[threadIdx.x] = *best;\n"
        "    places[threadIdx.x] = *place;\n"
        "    __syncthreads();\n"
        f"    {_HALVES}"
        f"            if ({wins}(bests[threadIdx.x + half], places[threadIdx.x + half], *best, *place)) {{\n"
        "                *best = bests[threadIdx.x + half];\n"
        "                *place = places[threadIdx.x + half];\n"
        "                bests[threadIdx.x] = *best;\n"
        "                places[threadIdx.x] = *place;\n"
        "            }\n"
        "        }\n"
        "        __syncthreads();\n"
        "    }\n"
        "    *best = bests[threadIdx.x % 32];\n"
        "    *place = places[threadIdx.x % 32];\n"
        "}\n"
    )
    return SupportFunction("void", name, definition, (wins,), f"// The {word} of a column's numbers and its place.\n")


_STEPS = "for (int step = 16; step > 0; step /= 2) {\n"
_WARPS = "const int warps = (int)blockDim.x / 32;  // a power of two\n"
_HALVES = "for (unsigned int half = blockDim.x / 2; half >= 32; half /= 2) {\n        if (threadIdx.x < half) {\n"
_STEPS_OF_WARPS = "for (int step = warps / 2; step > 0; step /= 2) {\n"
