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

from collections.abc import Callable

from staged.code.expr import Name
from staged.code.scalars import spell
from staged.code.support.library import Snippet, SupportFunction, made_of
from staged.errors import UnsupportedError
from staged.ir.declaration import DECLARED
from staged.ir.types import ALL_DTYPES, DType

_PLACES = ("argmax", "argmin")
_WINS = {f"wins_{op}_{dtype}": (op, dtype) for op in _PLACES for dtype in ALL_DTYPES}


def reduction_function(name: str) -> Snippet | None:
    """A reduction; None if `name` is none.

    Exact: every thread reads the same bits; NaN wins an extreme, of equals the lower place.
    """
    team, _, rest = name.partition("_")
    op, _, dtype_name = rest.rpartition("_")
    dtype = next((each for each in ALL_DTYPES if each.name == dtype_name), None)
    if team not in ("warp", "block", "column") or dtype is None:
        return None
    if op not in DECLARED or DECLARED[op].kind != "reduction":
        return None
    if op in _PLACES:
        needed = (f"wins_{op}_{dtype}",) if team != "block" else (f"wins_{op}_{dtype}", f"warp_{op}_{dtype}")
        return made_of(name, _place_function(team, op, dtype), needs=needed)
    return made_of(name, _total_function(team, op, dtype), needs=(f"warp_{op}_{dtype}",) if team == "block" else ())


def wins_function(name: str) -> Snippet | None:
    """The comparison behind argmax and argmin (`wins_argmax_f32`); None if `name` is none."""
    if name not in _WINS:
        return None
    op, dtype = _WINS[name]
    t, sign = dtype.c_name, {"argmax": ">", "argmin": "<"}[op]
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


def _combined(op: str, dtype: DType, x: str, y: str) -> str:
    if op in ("any", "all") or dtype.is_bool and op in ("max", "min"):
        return f"{x} {'||' if op in ('any', 'max') else '&&'} {y}"
    if op in ("max", "min"):
        nan = f" || {y} != {y}" if dtype.is_float else ""
        return f"{y} {'>' if op == 'max' else '<'} {x}{nan} ? {y} : {x}"
    if op not in ("sum", "prod"):
        return str(spell(DECLARED[op].combine, [dtype, dtype], dtype, [Name(x), Name(y)], {}, _no_support(op)))
    sign = "+" if op == "sum" else "*"
    if dtype.is_float:
        return f"{x} {sign} {y}"
    unsigned = dtype.c_name if dtype.kind == "u" else f"u{dtype.c_name}"
    return f"({dtype.c_name})(({unsigned}){x} {sign} ({unsigned}){y})"


def _no_support(op: str) -> Callable[[str], None]:
    """The `need` of a spelling in a device function, which has the language alone."""

    def need(snippet: str) -> None:
        raise UnsupportedError(
            f"teams of threads cannot combine totals of `{op}`, which needs `{snippet}`",
            hint="spell its `combine` without support functions",
        )

    return need


def _total_function(team: str, op: str, dtype: DType) -> SupportFunction:
    t, name = dtype.c_name, f"st_{team}_{op}_{dtype}"
    combined = f"        x = {_combined(op, dtype, 'x', 'other')};\n    }}\n    return x;\n}}\n"
    fetched = f"        const {t} other = {_shuffled(dtype, 'x')};\n"
    if team == "warp":
        definition = f"({t} x) {{\n    {_STEPS}{fetched}{combined}"
        comment = f"// The {_WORDS.get(op, op)} of a warp's numbers, the same bits in every lane.\n"
        return SupportFunction(t, name, definition, comment=comment)
    if team == "block":
        warp = f"st_warp_{op}_{dtype}"
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
        comment = f"// The {_WORDS.get(op, op)} of a block's numbers, the same bits in every thread.\n"
        return SupportFunction(t, name, definition, (warp,), comment)
    definition = (
        f"({t} x, {t} *parts) {{\n"
        "    parts[threadIdx.x] = x;\n"
        "    __syncthreads();\n"
        f"    {_HALVES}"
        f"            const {t} other = parts[threadIdx.x + half];\n"
        f"            x = {_combined(op, dtype, 'x', 'other')};\n"
        "            parts[threadIdx.x] = x;\n"
        "        }\n"
        "        __syncthreads();\n"
        "    }\n"
        "    return parts[threadIdx.x % 32];\n"
        "}\n"
    )
    comment = (
        f"// The {_WORDS.get(op, op)} of the numbers of a column, which has one thread in each warp of the block.\n"
    )
    return SupportFunction(t, name, definition, comment=comment)


def _place_function(team: str, op: str, dtype: DType) -> SupportFunction:
    t, name, wins = dtype.c_name, f"st_{team}_{op}_{dtype}", f"st_wins_{op}_{dtype}"
    word = {"argmax": "largest", "argmin": "smallest"}[op]
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
        warp = f"st_warp_{op}_{dtype}"
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
_WORDS = {
    "sum": "sum", "prod": "product", "max": "largest", "min": "smallest", "any": "disjunction", "all": "conjunction",
}  # fmt: skip
"""The names of totals in comments."""
