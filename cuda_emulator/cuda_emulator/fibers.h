// Fibers: stacks of their own between which one operating system thread switches, in a few nanoseconds.
//
// The switch is a dozen instructions per architecture; `swapcontext` of the C library, which works everywhere, makes a
// system call and takes thirty times as long. -DSTAGED_EMULATOR_UCONTEXT chooses it all the same.
#ifndef STAGED_EMULATOR_FIBERS_H
#define STAGED_EMULATOR_FIBERS_H

#include <cstddef>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(STAGED_EMULATOR_UCONTEXT)
#define STAGED_EMULATOR_UCONTEXT 1
#endif

#ifdef STAGED_EMULATOR_UCONTEXT
#include <ucontext.h>
#endif

namespace emulator {

// Where somebody stopped: a fiber, or the stack that entered the first one.
struct Context {
#ifdef STAGED_EMULATOR_UCONTEXT
    ucontext_t saved;
#else
    void *stack_pointer = nullptr;
#endif
};

class Fiber {
  public:
    static constexpr size_t STACK_BYTES = size_t(256) << 10;

    // A fiber that begins with `entry`, which must not return.
    explicit Fiber(void (*entry)());
    // From `from`, which is where the next switch back continues.
    void enter(Context &from);
    void leave(Context &to);
    // As if it had not begun: whatever it was in the middle of is forgotten.
    void restart();
    // The same, and to the race detector its stack is new memory.
    void renew();
    // Whether an address is in the page below the stack.
    bool is_guard(const void *address) const;

  private:
    void (*entry)();
    char *stack;  // its lowest byte; the page below is closed
    Context context;
};

}  // namespace emulator

#endif
