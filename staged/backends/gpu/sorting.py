"""Rows that are sorted by the threads of a block: a network that merges runs of twice the length each time.

Keys and the places that they come from are compared together, so no two are equal and the order is that of the host.
In a network whose exchanges all go the same way, elements beyond the end would stay there: a row may have any length.

Source: Batcher, Sorting networks and their applications, 1968; Knuth, The Art of Computer Programming, volume 3,
section 5.3.4, exercise 16, for the form without opposite directions.

Tested by `tests/ops/test_sorting.py`.
"""

from __future__ import annotations

from staged.backends.gpu.mapping import Part
from staged.code.support.library import Snippet, SupportFunction, made_of
from staged.code.support.sort import SORTS, key_dtype
from staged.ir.loops import Address, ArrayRef, CallSupport, Constant, Operand
from staged.ir.machine import Gpu
from staged.ir.schedule import Bind, Level, Memory, Place, Schedule, Share
from staged.ir.sizes import Size
from staged.ir.types import bound, i32

_PREFIX = "block_"
_TEXT = """\
({array}{t} *values, {array}int64_t *order, {array}const {t} *x, {own}{key} *keys,
                                      {own}int *places, int n, int k, bool descending) {{
    const int lane = {lane}, lanes = {lanes};
    for (int i = lane; i < n; i += lanes) {{
        const {key} key = st_sort_key_{dtype}(x[i]);
        keys[i] = descending ? ~key : key;
        places[i] = i;
    }}
    {barrier};
    for (int run = 1; run < n; run *= 2) {{
        for (int step = run; step > 0; step /= 2) {{
            for (int t = lane; t + t / step * step < n; t += lanes) {{
                const int low = t + t / step * step;
                const int high = step == run ? low ^ (2 * run - 1) : low + step;
                if (high < n && (keys[low] > keys[high] || (keys[low] == keys[high] && places[low] > places[high]))) {{
                    const {key} key = keys[low];
                    keys[low] = keys[high];
                    keys[high] = key;
                    const int place = places[low];
                    places[low] = places[high];
                    places[high] = place;
                }}
            }}
            {barrier};
        }}
    }}
    for (int i = lane; i < k; i += lanes) {{
        if (order != 0) {{
            order[i] = places[i];
        }}
        if (values != 0) {{
            values[i] = x[places[i]];
        }}
    }}
}}
"""
_COMMENT = """\
// The first k of n elements in order, and their places, by all threads of a block: sorted runs are merged two by two,
// the first exchange of a merge between elements at the same distance from the middle, the others `step` apart.
"""


def block_sort(
    name: str, lane: str, lanes: str, barrier: str, array: str = "", owns: tuple[str, ...] = ("",)
) -> Snippet | None:
    """The support function of a device with these words and memories, that sorts by a block; None for other names."""
    dtype = SORTS.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
    if dtype is None:
        return None
    words = {"t": dtype.c_name, "key": key_dtype(dtype).c_name, "dtype": dtype, "array": array}
    key = f"st_sort_key_{dtype}"
    functions = [
        SupportFunction(
            "void",
            f"st_{name}",
            _TEXT.format(lane=lane, lanes=lanes, barrier=barrier, own=own, **words),
            (key,),
            _COMMENT,
            is_overloaded=len(owns) > 1,
        )
        for own in owns
    ]
    return made_of(name, *functions, needs=(key.removeprefix("st_"),))


def sort_by_block(part: Part, gpu: Gpu) -> tuple[Part, Schedule] | None:
    """A part that sorts rows, with the workspace that a block of threads needs for one; None for others.

    Exact: the order of the host, element for element, for any number of threads.
    """
    match part.body:
        case (CallSupport(_, snippet, (values, *order, x, n, k, descending, ArrayRef())),) if snippet in SORTS:
            assert isinstance(x, Address)
            room = bound(n) if isinstance(n, Size) else _number(n)
            keys = ArrayRef("keys", key_dtype(x.array.dtype), room, "scratch")
            places = ArrayRef("places", i32, room, "scratch")
            missing = Constant(0, i32)
            arguments = (values or missing, *(order or [missing]), x, keys, places, _short(n), _short(k), descending)
            own = f"{_PREFIX}sort_{x.array.dtype}"
            call = CallSupport(f"st_{own}", own, arguments)
            made = Part(part.axes, (call,), (keys, places))
            threads = max(gpu.warp, min(gpu.largest_block, 1 << (room - 1).bit_length() >> 1))
            memory = Memory.SHARED if made.workspace_bytes <= gpu.shared_bytes else Memory.DEVICE
            return made, Schedule((
                Bind(part.axes, Level.BLOCKS, 1),
                Share(None, (), Level.THREADS, threads),
                Place(keys, memory),
                Place(places, memory),
            ))  # fmt: skip
    return None


def _number(given: object) -> int:
    assert isinstance(given, Constant)
    return int(given.value)


def _short(given: object) -> Operand | Size:
    return given if isinstance(given, Size) else Constant(_number(given), i32)
