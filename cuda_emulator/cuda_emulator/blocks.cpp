// The threads of one block: each runs until it waits for others, on a fiber.
//
// A fiber begins one thread after the other, so that a kernel in which nobody waits needs a single one. When a thread
// waits, its fiber is left as it is, and the next threads begin on another. Whoever is awaited last wakes the others.
// If nobody can go on the kernel is wrong, in one of the ways that hang a GPU or make it do anything at all, and is
// stopped with words:
//
// - a barrier (`__syncthreads`) that some threads do not reach, or which they reach at different lines;
// - lanes of a warp that wait for others which wait for something else;
// - a warp operation whose mask leaves out the caller, or which reads a lane that takes no part.

#include "blocks.h"

#include "emulator.h"
#include "fibers.h"
#include "races.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "include/cuda_runtime.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

extern "C" EmulatedThread emulated_thread;
EmulatedThread emulated_thread;

namespace emulator {

namespace {

enum class State : unsigned char { fresh, running, ready, at_barrier, in_warp, done };

// One operation of a warp: the lanes of `mask` meet here. It lives until the last of them has read its result.
struct Meeting {
    EmulatedWarpKind kind;
    unsigned mask, arrived, unread;
    int line;  // of the lane that came first
    uint64_t values[WARP];
    void *order;  // for the race detector, as below
};

struct Thread {
    uint3 index;
    State state;
    Fiber *fiber;
    Meeting *meeting;
    int barrier_line;
    races::Thread traced;
};

// The block that runs. There is one at a time; what it needs is kept for the next.
BlockCode code;
Thread threads[MAX_THREADS];
unsigned thread_count, begun, finished, current;
const std::vector<unsigned> *begin_order;
std::vector<unsigned> ready;  // threads that may go on
std::vector<Meeting *> open_meetings[MAX_THREADS / WARP], unused_meetings;
int barrier_sum, barrier_result;  // of the predicates that the threads bring
bool stopped;
void *barrier_order;
std::vector<void *> barrier_orders;

Context scheduler;
Fiber *fiber;  // that runs
std::vector<Fiber *> all_fibers, idle_fibers;

void now_runs(unsigned number) {
    current = number;
    emulated_thread.thread = threads[number].index;
    threads[number].state = State::running;
}

// Back to the scheduler until this thread is ready again.
void wait(State state) {
    const unsigned me = current;
    threads[me].state = state;
    threads[me].fiber = fiber;
    fiber->leave(scheduler);
    now_runs(me);
}

// The kernel cannot go on: its threads are left where they are.
[[noreturn]] void stop_here() {
    stopped = true;
    fiber->leave(scheduler);
    __builtin_unreachable();
}

// What the emulator does for a thread is not the thread's: to the race detector the host does it.
class AsHost {
  public:
    AsHost() {
        races::leave_thread();
    }
    ~AsHost() {
        races::enter_thread(threads[current].traced);
    }
    AsHost(const AsHost &) = delete;
    AsHost &operator=(const AsHost &) = delete;
};

void wake(unsigned number) {
    threads[number].state = State::ready;
    ready.push_back(number);
}

// ---- warps ----

// Lanes that have not returned. Those that are named by a mask and have are not waited for, as on a GPU.
unsigned live_lanes(unsigned warp) {
    unsigned live = 0;
    for (unsigned lane = 0; lane < WARP && warp * WARP + lane < thread_count; ++lane) {
        live |= threads[warp * WARP + lane].state == State::done ? 0 : 1u << lane;
    }
    return live;
}

// Whether everybody is there; wakes them then, but for `caller`.
bool complete(Meeting *meeting, unsigned warp, unsigned caller) {
    if ((meeting->mask & live_lanes(warp) & ~meeting->arrived) != 0) {
        return false;
    }
    auto &open = open_meetings[warp];
    open.erase(std::find(open.begin(), open.end(), meeting));
    for (unsigned lane = 0; lane < WARP; ++lane) {
        const unsigned number = warp * WARP + lane;
        if ((meeting->arrived >> lane & 1) && number != caller) {
            wake(number);
        }
    }
    return true;
}

// The operation that the caller takes part in: one that is open, or a new one.
Meeting *find_meeting(EmulatedWarpKind kind, unsigned mask, int line) {
    const unsigned warp = current / WARP, lane = current % WARP;
    if (!(mask >> lane & 1)) {
        kernel_violation("line %d: a warp operation whose mask %08x leaves out the lane that calls it", line, mask);
        stop_here();
    }
    for (Meeting *open : open_meetings[warp]) {
        if (open->kind == kind && open->mask == mask) {
            return open;
        }
    }
    if (unused_meetings.empty()) {
        unused_meetings.push_back(new Meeting);
    }
    Meeting *meeting = unused_meetings.back();
    unused_meetings.pop_back();
    meeting->kind = kind;
    meeting->mask = mask;
    meeting->arrived = meeting->unread = 0;
    meeting->line = line;
    meeting->order = races::new_order();
    open_meetings[warp].push_back(meeting);
    return meeting;
}

void arrive(Meeting *meeting, uint64_t value) {
    const unsigned lane = current % WARP;
    meeting->values[lane] = value;
    meeting->arrived |= 1u << lane;
    meeting->unread |= 1u << lane;
    threads[current].meeting = meeting;
    if (!complete(meeting, current / WARP, current)) {
        wait(State::in_warp);
    }
}

Meeting *meet(EmulatedWarpKind kind, unsigned mask, uint64_t value, int line) {
    Meeting *meeting;
    {
        AsHost host;
        meeting = find_meeting(kind, mask, line);
    }
    races::before(meeting->order);
    {
        AsHost host;
        arrive(meeting, value);
    }
    races::after(meeting->order);
    return meeting;
}

void has_read(Meeting *meeting) {
    AsHost host;
    meeting->unread &= ~(1u << current % WARP);
    if (meeting->unread == 0) {
        races::delete_order(meeting->order);
        unused_meetings.push_back(meeting);
    }
}

// ---- the block ----

void next_barrier() {
    barrier_order = races::new_order();
    barrier_orders.push_back(barrier_order);
}

void thread_returned() {
    threads[current].state = State::done;
    ++finished;
    const unsigned warp = current / WARP;
    const auto open = open_meetings[warp];  // a copy: what completes is taken out
    for (Meeting *meeting : open) {
        complete(meeting, warp, current);
    }
}

void run_threads() {
    for (;;) {
        do {
            now_runs((*begin_order)[begun++]);
            races::enter_thread(threads[current].traced);
            code.call(code.arguments);
            races::end_thread();
            thread_returned();
        } while (begun < thread_count && !races::ENABLED);  // to the race detector a stack is of one thread
        idle_fibers.push_back(fiber);
        fiber->leave(scheduler);
    }
}

void resume(Fiber *next) {
    fiber = next;
    fiber->enter(scheduler);
}

Fiber *idle_fiber() {
    if (idle_fibers.empty()) {
        all_fibers.push_back(new Fiber(run_threads));
        return all_fibers.back();
    }
    Fiber *idle = idle_fibers.back();
    idle_fibers.pop_back();
    if (races::ENABLED) {
        idle->renew();
    }
    return idle;
}

// Nobody can go on, and there are threads that wait. Opens the barrier if all are at it.
bool open_barrier() {
    const Thread *first = nullptr, *absent = nullptr;
    for (unsigned number = 0; number < thread_count; ++number) {
        const Thread &thread = threads[number];
        if (thread.state == State::in_warp) {
            const Meeting &meeting = *thread.meeting;
            current = number;
            emulated_thread.thread = thread.index;
            kernel_violation(
                "line %d: a warp operation waits for ever: its mask is %08x, of which %08x came", meeting.line,
                meeting.mask, meeting.arrived);
            return false;
        }
        if (thread.state == State::at_barrier) {
            first = first == nullptr ? &thread : first;
        } else {
            absent = &thread;
        }
    }
    for (unsigned number = 0; number < thread_count; ++number) {
        const Thread &thread = threads[number];
        emulated_thread.thread = thread.index;
        if (absent != nullptr && thread.state == State::at_barrier) {
            kernel_violation(
                "line %d: a barrier that not all threads reach: thread (%u,%u,%u) has returned", thread.barrier_line,
                absent->index.x, absent->index.y, absent->index.z);
            return false;
        }
        if (absent == nullptr && thread.barrier_line != first->barrier_line) {
            kernel_violation(
                "line %d: a barrier that not all threads reach: thread (%u,%u,%u) waits at another, line %d",
                thread.barrier_line, first->index.x, first->index.y, first->index.z, first->barrier_line);
            return false;
        }
    }
    barrier_result = barrier_sum;
    barrier_sum = 0;
    next_barrier();
    for (unsigned turn = 0; turn < thread_count; ++turn) {
        wake((*begin_order)[turn]);
    }
    return true;
}

void forget_threads() {
    for (Fiber *each : all_fibers) {
        each->restart();
    }
    idle_fibers = all_fibers;
    for (auto &open : open_meetings) {
        open.clear();
    }
}

bool run_to_the_end(bool shuffled) {
    size_t next = 0;  // among those that are ready, in the order in which they became so
    while (!stopped) {
        if (next == ready.size()) {
            ready.clear();
            next = 0;
        }
        const bool has_fresh = begun < thread_count, has_ready = next < ready.size();
        if (has_ready && !(shuffled && has_fresh && random_number(2) == 0)) {
            if (shuffled) {
                std::swap(ready[next], ready[next + random_number(ready.size() - next)]);
            }
            resume(threads[ready[next++]].fiber);
        } else if (has_fresh) {
            resume(idle_fiber());
        } else if (finished == thread_count) {
            return true;
        } else if (!open_barrier()) {
            stopped = true;
        }
    }
    forget_threads();
    return false;
}

}  // namespace

bool run_block(const BlockCode &block_code, const std::vector<unsigned> &order, bool shuffled) {
    code = block_code;
    begin_order = &order;
    const dim3 size = emulated_thread.block_size;
    thread_count = size.x * size.y * size.z;
    begun = finished = 0;
    barrier_sum = 0;
    stopped = false;
    ready.clear();
    unsigned number = 0;
    for (unsigned z = 0; z < size.z; ++z) {
        for (unsigned y = 0; y < size.y; ++y) {
            for (unsigned x = 0; x < size.x; ++x, ++number) {
                threads[number].index = {x, y, z};
                threads[number].state = State::fresh;
            }
        }
    }
    for (unsigned thread = 0; races::ENABLED && thread < thread_count; ++thread) {
        threads[thread].traced = races::new_thread();
    }
    next_barrier();
    const bool whole = run_to_the_end(shuffled);
    for (unsigned thread = 0; races::ENABLED && thread < thread_count; ++thread) {
        races::delete_thread(threads[thread].traced);
    }
    for (void *each : barrier_orders) {
        races::delete_order(each);
    }
    barrier_orders.clear();
    return whole;
}

bool is_below_a_stack(const void *address) {
    return std::any_of(
        all_fibers.begin(), all_fibers.end(), [address](const Fiber *each) { return each->is_guard(address); });
}

}  // namespace emulator

using namespace emulator;

extern "C" {

int emulator_barrier(int predicate, int line) {
    void *const order = barrier_order;  // of this barrier: it opens before all have gone on
    races::before(order);
    {
        AsHost host;
        threads[current].barrier_line = line;
        barrier_sum += predicate;
        wait(State::at_barrier);
    }
    races::after(order);
    return barrier_result;
}

uint64_t emulator_warp_exchange(unsigned int mask, uint64_t value, int source, int line) {
    Meeting *meeting = meet(EMULATED_SHUFFLE, mask, value, line);
    if (source >= 0 && !(meeting->arrived >> source & 1)) {
        AsHost host;
        kernel_violation(
            "line %d: a shuffle reads lane %d, which takes no part: mask %08x, of which %08x came", line, source, mask,
            meeting->arrived);
        stop_here();
    }
    const uint64_t result = source < 0 ? value : meeting->values[source];
    has_read(meeting);
    return result;
}

unsigned int emulator_warp_vote(enum EmulatedWarpKind kind, unsigned int mask, int predicate, int line) {
    Meeting *meeting = meet(kind, mask, predicate != 0, line);
    unsigned votes = 0;
    for (unsigned lane = 0; lane < WARP; ++lane) {
        votes |= (meeting->arrived >> lane & 1) && meeting->values[lane] ? 1u << lane : 0u;
    }
    has_read(meeting);
    return votes;
}

// A GPU gives the lanes that happen to run together. Here that is one, which is allowed and trips code that hopes for
// more.
unsigned int emulator_active_lanes(void) {
    return 1u << (current % WARP);
}

int emulator_lane(void) {
    return int(current % WARP);
}

void *emulator_dynamic_shared(void) {
    return code.dynamic_shared;
}

void emulator_trap(int line) {
    AsHost host;
    kernel_violation("line %d: __trap()", line);
    stop_here();
}

}  // extern "C"
