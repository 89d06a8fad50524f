// What the emulated device tells the thread sanitizer, which then finds races between the threads of a kernel.
//
// The kernels are compiled with -fsanitize=thread, this library without, but with -DSTAGED_EMULATOR_RACES. To the
// sanitizer each thread of a block is a thread of its own, ordered after what the host did before the launch; barriers
// and warp operations order those that take part, and the end of the kernel orders all before what comes next. Nothing
// orders two blocks. So a race is found whatever order the threads happen to run in. Elsewhere all of this is empty.
#ifndef STAGED_EMULATOR_RACES_H
#define STAGED_EMULATOR_RACES_H

#include <cstddef>

#ifdef STAGED_EMULATOR_RACES
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
}
#endif

namespace emulator {
namespace races {

using Thread = void *;

#ifdef STAGED_EMULATOR_RACES

constexpr bool ENABLED = true;
constexpr unsigned NO_ORDER = 1;  // a switch alone orders nothing

inline Thread host = nullptr;
inline char kernel_end;

inline Thread new_thread() {
    return __tsan_create_fiber(0);
}
inline void delete_thread(Thread thread) {
    __tsan_destroy_fiber(thread);
}
inline void enter_thread(Thread thread) {
    host = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(thread, NO_ORDER);
}
inline void leave_thread() {
    __tsan_switch_to_fiber(host, NO_ORDER);
}
inline void end_thread() {
    __tsan_release(&kernel_end);
    leave_thread();
}
inline void end_kernel() {
    __tsan_acquire(&kernel_end);
}
// What comes `before` happens first to what comes `after`. Memory of its own each time: the sanitizer remembers by
// address.
inline void *new_order() {
    return new char;
}
inline void delete_order(void *order) {
    delete static_cast<char *>(order);
}
inline void before(void *order) {
    __tsan_release(order);
}
inline void after(void *order) {
    __tsan_acquire(order);
}
// Whole pages become new ones, of zeros.
void renew_pages(char *start, size_t size);
// The bytes from `start` to `end` keep their values; what was done to them, and to others on their pages, is forgotten.
void forget_memory(char *start, char *end);

#else

constexpr bool ENABLED = false;

inline Thread new_thread() { return nullptr; }
inline void delete_thread(Thread) {}
inline void enter_thread(Thread) {}
inline void leave_thread() {}
inline void end_thread() {}
inline void end_kernel() {}
inline void *new_order() { return nullptr; }
inline void delete_order(void *) {}
inline void before(void *) {}
inline void after(void *) {}
inline void renew_pages(char *, size_t) {}
inline void forget_memory(char *, char *) {}

#endif

}  // namespace races
}  // namespace emulator

#endif
