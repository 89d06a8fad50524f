// Fibers alone, for test_threads.py: built with the switch of this machine, and with that of the C library.

#include "fibers.cpp"

using emulator::Context;
using emulator::Fiber;

static Context host;
static Fiber *fibers[3];
static int running;

// Each keeps numbers of its own over every switch: in registers that a call preserves, and on its stack.
static void entry() {
    const int me = running;
    volatile int kept[100];
    double sum = 0.5 * me;
    for (int turn = 0;; ++turn) {
        kept[turn % 100] = me * 1000 + turn;
        sum += turn;
        fibers[me]->leave(host);
        if (running != me || kept[turn % 100] != me * 1000 + turn || sum != 0.5 * me + 0.5 * turn * (turn + 1)) {
            puts("lost");
            _Exit(1);
        }
        if (turn == 999) {
            printf("%d: %g\n", me, sum);
        }
    }
}

int main() {
    for (Fiber *&fiber : fibers) {
        fiber = new Fiber(entry);
    }
    for (int turn = 0; turn < 3003; ++turn) {
        running = turn % 3;
        fibers[running]->enter(host);
    }
    for (running = 0; running < 3; ++running) {
        fibers[running]->restart();
        fibers[running]->enter(host);
    }
    puts("done");
    return 0;
}
