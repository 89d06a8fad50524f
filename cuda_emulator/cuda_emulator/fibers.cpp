// Fibers: how a stack is made and how one switches to it.

#include "fibers.h"

#include "races.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <sys/mman.h>

namespace emulator {

namespace {
constexpr size_t GUARD = 1 << 20;  // addresses alone; larger than most arrays, which may be entered at their far end
}

#ifndef STAGED_EMULATOR_UCONTEXT

// Pushes what a called function must preserve, leaves the stack pointer in `*from` and goes on where `to` was left.
// Floating point control words are left alone: kernels do not change them.
extern "C" void staged_emulator_switch(void **from, void *to);

#if defined(__x86_64__)
constexpr size_t SAVED = 6;  // rbp, rbx, r12 to r15; the address to return to lies above them
asm(R"(
    .text
    .type staged_emulator_switch,@function
    .hidden staged_emulator_switch
    .globl staged_emulator_switch
staged_emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size staged_emulator_switch,.-staged_emulator_switch
)");
constexpr size_t RETURN_SLOT = SAVED;
constexpr size_t FRAME = SAVED + 2;  // and an address of 0 where a caller would be, which ends backtraces
#else
// x19 to x30 (frame pointer and return address among them) and the low halves of v8 to v15.
asm(R"(
    .text
    .type staged_emulator_switch,%function
    .hidden staged_emulator_switch
    .globl staged_emulator_switch
staged_emulator_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size staged_emulator_switch,.-staged_emulator_switch
)");
constexpr size_t RETURN_SLOT = 11;  // x30
constexpr size_t FRAME = 20;
#endif

void Fiber::restart() {
    void **top = reinterpret_cast<void **>(stack + STACK_BYTES) - FRAME;
    for (size_t slot = 0; slot < FRAME; ++slot) {
        top[slot] = nullptr;
    }
    top[RETURN_SLOT] = reinterpret_cast<void *>(entry);
    context.stack_pointer = top;
}

void Fiber::enter(Context &from) {
    staged_emulator_switch(&from.stack_pointer, context.stack_pointer);
}

void Fiber::leave(Context &to) {
    staged_emulator_switch(&context.stack_pointer, to.stack_pointer);
}

#else

void Fiber::restart() {
    getcontext(&context.saved);
    context.saved.uc_stack.ss_sp = stack;
    context.saved.uc_stack.ss_size = STACK_BYTES;
    context.saved.uc_link = nullptr;
    makecontext(&context.saved, entry, 0);
}

void Fiber::enter(Context &from) {
    swapcontext(&from.saved, &context.saved);
}

void Fiber::leave(Context &to) {
    swapcontext(&context.saved, &to.saved);
}

#endif

Fiber::Fiber(void (*entry_)()) : entry(entry_) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *mapped = mmap(nullptr, GUARD + STACK_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (mapped == MAP_FAILED) {
        fputs("emulated device: no memory for the stacks of a block's threads\n", stderr);
        abort();
    }
    mprotect(mapped, GUARD, PROT_NONE);
    stack = static_cast<char *>(mapped) + GUARD;
    restart();
}

void Fiber::renew() {
    races::renew_pages(stack, STACK_BYTES);
    restart();
}

bool Fiber::is_guard(const void *address) const {
    const char *at = static_cast<const char *>(address);
    return at >= stack - GUARD && at < stack;
}

}  // namespace emulator
