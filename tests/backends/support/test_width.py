"""Support functions of a program have the branches for its vectors alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from staged.code.support.library import Snippet, snippets
from staged.code.support.vectors import WIDTHS
from staged.code.support.width import for_width

TEXT = """\
#if defined(__clang__)
a
#elif defined(__AVX512F__) && ST_VECTOR_BYTES == 64
b
#elif (ST_VECTOR_BYTES == 64 && defined(W)) || (ST_VECTOR_BYTES < 64 && defined(N))
    #if ST_VECTOR_BYTES == 16
    c
    #elif ST_VECTOR_BYTES == 32 \\
        && defined(V)
    d
    #else
    e
    #endif
#elif ST_VECTOR_BYTES == 16
f
#else
g
#endif
"""
LEFT = {
    16: "#if defined(__clang__)\na\n#elif defined(N)\n    c\n#else\nf\n#endif\n",
    32: "#if defined(__clang__)\na\n#elif defined(N)\n    #if defined(V)\n    d\n    #else\n    e\n    #endif\n#else\ng\n#endif\n",
    64: "#if defined(__clang__)\na\n#elif defined(__AVX512F__)\nb\n#elif defined(W)\n    e\n#else\ng\n#endif\n",
}


@pytest.mark.parametrize("width", WIDTHS)
def test_a_branch_is_left_if_its_condition_can_hold(width: int) -> None:
    assert for_width(Snippet("x", TEXT), width).text == LEFT[width]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_preprocessor_sees_the_same_text(width: int, tmp_path: Path) -> None:
    def seen(texts: list[str], *flags: str) -> str:
        (tmp_path / "x.c").write_text(f"#define ST_VECTOR_BYTES {width}\n" + "\n".join(texts))
        words = ["cc", "-E", "-P", "-dD", *flags, "x.c"]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    chosen = [each for each in snippets().values() if for_width(each, width) is not each]
    assert len(chosen) > 20
    for flags in ((), ("-mavx2", "-mfma"), ("-march=x86-64-v4", "-mavx512vnni")):
        assert seen([for_width(each, width).text for each in chosen], *flags) == seen([e.text for e in chosen], *flags)
