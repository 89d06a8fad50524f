// Streams of the emulated device: queues of work.
//
// Eager streams do work when it is enqueued. Lazy ones keep it until something waits (a synchronisation, a copy that is
// not asynchronous, cudaFree), and do then what may be done, the work of all streams interleaved by lot: an order that
// a GPU may take, and usually not the one in which the program's author thought. So a wait that is missing gives wrong
// numbers, for most seeds.

#include "streams.h"

#include <algorithm>

namespace emulator {

bool in_host_function;

namespace {

// Those that have work, which may be nobody's any more.
std::vector<std::shared_ptr<Queue>> &busy() {
    static auto &queues = *new std::vector<std::shared_ptr<Queue>>;
    return queues;
}

// The null stream of each device.
Queue &null_queue(int device, std::shared_ptr<Queue> *owner = nullptr) {
    static auto &queues = *new std::vector<std::shared_ptr<Queue>>;
    while (queues.size() <= size_t(device)) {
        queues.push_back(std::make_shared<Queue>(Queue{int(queues.size()), true, 0, 0, {}}));
    }
    if (owner != nullptr) {
        *owner = queues[size_t(device)];
    }
    return *queues[size_t(device)];
}

std::shared_ptr<Queue> queue_of(cudaStream_t stream) {
    std::shared_ptr<Queue> queue;
    if (stream != nullptr) {
        return stream->queue;
    }
    null_queue(current_device(), &queue);
    return queue;
}

bool may_run(const Queue &queue) {
    const auto &after = queue.waiting.front().after;
    return std::all_of(after.begin(), after.end(), [](const Ticket &ticket) { return ticket.is_reached(); });
}

void step(Queue &queue) {
    if (queue.waiting.front().step()) {
        queue.waiting.pop_front();
        ++queue.done;
    }
}

// The null stream waits for the streams of its device that are not `cudaStreamNonBlocking`, and they for it.
void add_turns(const std::shared_ptr<Queue> &queue, Work &work) {
    std::shared_ptr<Queue> null;
    null_queue(queue->device, &null);
    if (queue != null) {
        if (queue->is_blocking) {
            work.after.push_back({null, null->enqueued});
        }
        return;
    }
    for (const auto &other : busy()) {
        if (other->is_blocking && other->device == queue->device && other != queue) {
            work.after.push_back({other, other->enqueued});
        }
    }
}

void list_streams(std::vector<std::string> &lines) {
    for (const auto &stream : streams().all()) {
        const std::string name = "stream " + std::to_string(stream->number);
        lines.push_back(name + " on device " + std::to_string(stream->queue->device));
    }
}

const bool listed = (add_census(list_streams), true);

cudaError_t enqueue_piece(cudaStream_t stream, Piece piece) {
    Locked locked(device_lock);
    if (in_host_function) {
        violation("%s: called by a function of cudaLaunchHostFunc, which may not use the device", piece.what.c_str());
        return failed(cudaErrorNotPermitted);
    }
    if (settings().devices == 0) {
        return failed(cudaErrorNoDevice);
    }
    if (check_lost() != cudaSuccess) {
        return check_lost();
    }
    if (!is_stream(stream, piece.what.c_str())) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    if (stream != nullptr && stream->capture) {
        return capture_piece(stream, std::move(piece));
    }
    if (Capture *capture = stream == nullptr ? capture_with_blocking_streams(current_device()) : nullptr) {
        return refuse_in_capture(*capture, cudaErrorStreamCaptureImplicit, piece.what.c_str());
    }
    ++counts.enqueued;
    push(stream, {{}, [piece] {
                      run_piece(piece);
                      return true;
                  }});
    return cudaSuccess;
}

}  // namespace

Handles<CUstream_st> &streams() {
    static auto &handles = *new Handles<CUstream_st>("stream", &emulator_counts::live_streams);
    return handles;
}

bool Ticket::is_reached() const {
    return queue == nullptr || queue->done >= number;
}

void run_piece(const Piece &piece) {
    if (!piece.on_host) {
        DeviceWork work(piece.device);
        running_work = piece.what.c_str();
        piece.run();
        running_work = nullptr;
        return;
    }
    in_host_function = true;
    piece.run();
    in_host_function = false;
}

Ticket last_of(cudaStream_t stream) {
    const auto queue = queue_of(stream);
    return {queue, queue->enqueued};
}

void push(cudaStream_t stream, Work work) {
    const auto queue = queue_of(stream);
    if (!settings().lazy) {
        // Nothing waits: all work before this is done.
        ++queue->enqueued;
        while (!work.step()) {
        }
        ++queue->done;
        return;
    }
    add_turns(queue, work);
    ++queue->enqueued;
    queue->waiting.push_back(std::move(work));
    if (std::find(busy().begin(), busy().end(), queue) == busy().end()) {
        busy().push_back(queue);
    }
}

bool run_some() {
    auto &queues = busy();
    queues.erase(
        std::remove_if(queues.begin(), queues.end(), [](const auto &queue) { return queue->waiting.empty(); }),
        queues.end());
    std::vector<std::shared_ptr<Queue>> candidates;
    std::copy_if(queues.begin(), queues.end(), std::back_inserter(candidates), [](const auto &queue) {
        return may_run(*queue);
    });
    if (candidates.empty()) {
        return false;
    }
    step(*candidates[random_number(candidates.size())]);
    return true;
}

void wait_for(const Ticket &ticket) {
    // Tickets are for work that was enqueued before, so somebody can always go on.
    while (!ticket.is_reached() && run_some()) {
    }
}

void wait_for_stream(cudaStream_t stream) {
    wait_for(last_of(stream));
}

void wait_for_device(int device) {
    const auto queues = busy();  // a copy: running takes out what is done
    for (const auto &queue : queues) {
        if (queue->device == device) {
            wait_for({queue, queue->enqueued});
        }
    }
}

cudaError_t enqueue(cudaStream_t stream, const char *what, std::function<void()> work) {
    Locked locked(device_lock);
    return enqueue_piece(stream, {what, device_of(stream), false, std::move(work)});
}

bool is_stream(cudaStream_t stream, const char *what) {
    return stream == nullptr || streams().check(stream, what);
}

int device_of(cudaStream_t stream) {
    return stream != nullptr && streams().all().count(stream) ? stream->queue->device : current_device();
}

bool is_capturing(cudaStream_t stream) {
    return stream != nullptr && streams().all().count(stream) && stream->capture;
}

cudaError_t check_call(const char *what) {
    if (in_host_function) {
        violation("%s: called by a function of cudaLaunchHostFunc, which may not use the device", what);
        return failed(cudaErrorNotPermitted);
    }
    if (Capture *capture = forbidding_capture()) {
        return refuse_in_capture(*capture, cudaErrorStreamCaptureUnsupported, what);
    }
    return cudaSuccess;
}

}  // namespace emulator

using namespace emulator;

// Why `stream` cannot be waited for or asked now; `cudaSuccess` where it can.
static cudaError_t check_wait(cudaStream_t stream, const char *what) {
    if (!is_stream(stream, what)) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    if (is_capturing(stream)) {
        return refuse_in_capture(*stream->capture, cudaErrorStreamCaptureUnsupported, what);
    }
    if (in_host_function || stream == nullptr) {
        return check_call(what);
    }
    return cudaSuccess;
}

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    static int made;
    Locked locked(device_lock);
    if (settings().devices == 0) {
        return failed(cudaErrorNoDevice);
    }
    if (check_lost() != cudaSuccess) {
        return check_lost();
    }
    const auto queue = std::make_shared<Queue>(Queue{current_device(), !(flags & cudaStreamNonBlocking), 0, 0, {}});
    *stream = streams().add(new CUstream_st{++made, queue, nullptr, {}});
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

// What it has yet to do is done all the same.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    Locked locked(device_lock);
    if (is_capturing(stream)) {
        return refuse_in_capture(*stream->capture, cudaErrorStreamCaptureUnsupported, "cudaStreamDestroy");
    }
    if (stream == nullptr || !streams().remove(stream, "cudaStreamDestroy")) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    Locked locked(device_lock);
    const cudaError_t error = check_wait(stream, "cudaStreamSynchronize");
    if (error != cudaSuccess) {
        return error;
    }
    ++counts.synchronisations;
    wait_for_stream(stream);
    return take_late_error();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    Locked locked(device_lock);
    const cudaError_t error = check_wait(stream, "cudaStreamQuery");
    if (error != cudaSuccess) {
        return error;
    }
    const Ticket last = last_of(stream);
    if (!last.is_reached()) {
        run_some();  // time goes on while a program asks
    }
    return last.is_reached() ? take_late_error() : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void) {
    Locked locked(device_lock);
    const cudaError_t error = check_call("cudaDeviceSynchronize");
    if (error != cudaSuccess) {
        return error;
    }
    // Whoever captures it: all streams of the device would have to be waited for.
    if (Capture *capture = capture_on_device(current_device())) {
        return refuse_in_capture(*capture, cudaErrorStreamCaptureUnsupported, "cudaDeviceSynchronize");
    }
    ++counts.synchronisations;
    wait_for_device(current_device());
    return take_late_error();
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument) {
    Locked locked(device_lock);
    return enqueue_piece(stream, {"cudaLaunchHostFunc", device_of(stream), true, [=] { function(argument); }});
}

}  // extern "C"
