"""Growable storage: contents, growth, reuse, and running out of memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

from staged.ir.machine import PORTABLE
from tests.backends.support.harness import FLAGS, WARNINGS, program

_MAIN = """
#include <stdio.h>

static int64_t allocations;

static void *counted_realloc(void *data, size_t bytes) {
    ++allocations;
    return bytes > ((size_t)1 << 40) ? NULL : realloc(data, bytes);
}

static void fill(st_host *host, st_stack *stack, int64_t count) {
    st_stack_reset(stack);
    for (int64_t i = 0; i < count; ++i) {
        const double item[3] = {(double)i, 2.0 * (double)i, -1.0};
        if (st_stack_push(host, stack, item, sizeof item) != ST_OK) {
            return;
        }
    }
}

int main(void) {
    st_host host = {0};
    st_stack stack = {0};
    for (int turn = 0; turn < 3; ++turn) {
        fill(&host, &stack, 10000);
        printf("%d: %lld items, %lld bytes, %lld allocations\\n", turn, (long long)stack.length, (long long)stack.capacity,
               (long long)allocations);
    }
    double sum = 0.0;
    for (int64_t i = 0; i < stack.length; ++i) {
        const double *item = (const double *)(const void *)stack.data + 3 * i;
        sum += item[0] + item[1] + item[2];
    }
    printf("sum %.1f\\n", sum);
    st_stack empty = {0};
    printf("empty items: %d", st_stack_push(&host, &empty, NULL, 0));
    printf(" %lld\\n", (long long)empty.length);
    st_stack large = {0};
    printf("too large: %d", st_stack_push(&host, &large, &sum, (size_t)1 << 50) == ST_MEMORY_ERROR);
    printf(" %lld %s\\n", (long long)large.length, host.message);
    st_host other = {0};
    printf("not addressable: %d", st_stack_push(&other, &large, &sum, SIZE_MAX) == ST_MEMORY_ERROR);
    printf(" %s\\n", other.message);
    st_stack parts = {0};
    for (int64_t i = 0; i < 3; ++i) {
        const double item[1] = {(double)i};  // one number, where there is room for four
        st_stack_push_part(&host, &parts, item, 4 * sizeof(double), sizeof item);
    }
    printf("parts: %lld of %.1f %.1f\\n", (long long)parts.length, ((double *)(void *)parts.data)[4],
           ((double *)(void *)parts.data)[8]);
    st_stack_release(&parts);
    st_stack_release(&stack);
    printf("released %d %lld\\n", stack.data == NULL, (long long)stack.capacity);
    return 0;
}
"""


def test_stack(tmp_path: Path) -> None:
    text = program(["stack"], _MAIN, PORTABLE)
    text = text.replace("(unsigned char *)realloc(", "(unsigned char *)counted_realloc(")
    text = text.replace(
        "// Append an item", "static void *counted_realloc(void *data, size_t bytes);\n// Append an item"
    )
    (tmp_path / "stack.c").write_text(text)
    command = ["gcc", *FLAGS, *WARNINGS, "-g", "-fsanitize=address,undefined", "stack.c", "-o", "stack"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([tmp_path / "stack"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    # 240,000 bytes: 4096 doubled six times; later iterations allocate nothing
    assert lines[:3] == [f"{turn}: 10000 items, 262144 bytes, 7 allocations" for turn in range(3)]
    assert lines[3] == f"sum {sum(3.0 * i - 1.0 for i in range(10000)):.1f}"
    assert lines[4] == "empty items: 0 1"
    assert lines[5] == f"too large: 1 0 out of memory: a loop keeps 0 bytes for its gradient, and {2**50} more"
    assert lines[6] == "not addressable: 1 a loop keeps more for its gradient than can be addressed"
    assert lines[7] == "parts: 3 of 1.0 2.0"
    assert lines[8] == "released 1 0"
