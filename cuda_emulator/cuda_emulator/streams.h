// Streams, as their queues, their events and captures see them.
#ifndef STAGED_EMULATOR_STREAMS_H
#define STAGED_EMULATOR_STREAMS_H

#include "emulator.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

namespace emulator {

struct Queue;

// A point in a stream's work: reached when that many pieces of it are done. Nobody has reached what comes after.
struct Ticket {
    std::shared_ptr<Queue> queue;
    uint64_t number = 0;
    bool is_reached() const;
};

// One piece of work in a stream. `step` does some of it and says whether that was all: a graph takes a step for each
// node.
struct Work {
    std::vector<Ticket> after;
    std::function<bool()> step;
};

// The work of a stream, which outlives its handle.
struct Queue {
    int device;
    bool is_blocking;  // takes turns with the null stream of its device
    uint64_t enqueued = 0, done = 0;
    std::deque<Work> waiting;
};

// What is run: one call's work, on the device or, for cudaLaunchHostFunc, on the host.
struct Piece {
    std::string what;
    int device;
    bool on_host;
    std::function<void()> run;
};
void run_piece(const Piece &piece);

// A piece of a captured stream, after those that its stream, or an event, made it wait for.
struct Node {
    Piece piece;
    std::vector<size_t> after;  // sorted
};

// Streams of which the work is written down instead of done.
struct Capture {
    cudaStream_t origin;
    enum cudaStreamCaptureMode mode;
    std::thread::id thread;
    cudaError_t error = cudaSuccess;  // why it is worth nothing any more
    std::vector<Node> nodes;
    std::set<cudaStream_t> streams;
};

// The handles of streams: `capture` while they are captured, after which nodes the next one comes.
Handles<CUstream_st> &streams();
Ticket last_of(cudaStream_t stream);
void push(cudaStream_t stream, Work work);
void wait_for(const Ticket &ticket);
// Runs a piece of what may run now, chosen by lot; false where there is none.
bool run_some();

// ---- captures (graphs.cpp) ----

cudaError_t capture_piece(cudaStream_t stream, Piece piece);
// A call that a capture cannot take: it is said, the capture is worth nothing, `error` is given.
cudaError_t refuse_in_capture(Capture &capture, cudaError_t error, const char *what);
// The capture during which this thread may not call what waits or allocates; NULL if there is none.
Capture *forbidding_capture();
// A capture that has a stream of the device, or one that the null stream waits for; NULL if there is none.
Capture *capture_on_device(int device);
Capture *capture_with_blocking_streams(int device);

}  // namespace emulator

struct CUstream_st {
    int number;
    std::shared_ptr<emulator::Queue> queue;
    std::shared_ptr<emulator::Capture> capture;
    std::vector<size_t> frontier;  // the captured nodes that the next one comes after
};

#endif
