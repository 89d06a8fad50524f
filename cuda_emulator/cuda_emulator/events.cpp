// Events of the emulated device: points in the work of streams.

#include "streams.h"

#include <chrono>

using namespace emulator;

struct CUevent_st {
    int number;
    int device;
    bool has_time;
    bool is_recorded;
    Ticket ticket;
    std::shared_ptr<double> milliseconds;  // when the record was reached
    // Where it was recorded in a captured stream: the nodes that come before it.
    std::weak_ptr<Capture> capture;
    bool is_captured;
    std::vector<size_t> frontier;
};

namespace {

Handles<CUevent_st> &events() {
    static auto &handles = *new Handles<CUevent_st>("event", &emulator_counts::live_events);
    return handles;
}

void list_events(std::vector<std::string> &lines) {
    for (const auto &event : events().all()) {
        lines.push_back("event " + std::to_string(event->number) + " on device " + std::to_string(event->device));
    }
}

const bool listed = (add_census(list_events), true);

double now() {
    const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(since_start).count();
}

// Why an event cannot be waited for or asked now.
cudaError_t check_event(cudaEvent_t event, const char *what) {
    if (!events().check(event, what)) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    if (in_host_function) {
        return check_call(what);
    }
    if (event->is_captured) {
        if (const auto capture = event->capture.lock()) {
            return refuse_in_capture(*capture, cudaErrorCapturedEvent, what);
        }
        violation("%s: the event was last recorded in a captured stream, where it has no time", what);
        return failed(cudaErrorCapturedEvent);
    }
    return cudaSuccess;
}

// The nodes that `stream` waits for join those that it has.
cudaError_t wait_in_capture(cudaStream_t stream, cudaEvent_t event, const std::shared_ptr<Capture> &capture) {
    if (stream == nullptr) {
        return refuse_in_capture(*capture, cudaErrorStreamCaptureImplicit, "cudaStreamWaitEvent");
    }
    if (stream->capture && stream->capture != capture) {
        return refuse_in_capture(*stream->capture, cudaErrorStreamCaptureIsolation, "cudaStreamWaitEvent");
    }
    stream->capture = capture;
    capture->streams.insert(stream);
    std::set<size_t> joined(stream->frontier.begin(), stream->frontier.end());
    joined.insert(event->frontier.begin(), event->frontier.end());
    stream->frontier.assign(joined.begin(), joined.end());
    return capture->error;
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    static int made;
    Locked locked(device_lock);
    *event = events().add(new CUevent_st{
        ++made, current_device(), !(flags & cudaEventDisableTiming), false, {}, nullptr, {}, false, {}});
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    Locked locked(device_lock);
    return events().remove(event, "cudaEventDestroy") ? cudaSuccess : failed(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    Locked locked(device_lock);
    if (!events().check(event, "cudaEventRecord") || !is_stream(stream, "cudaEventRecord")) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    if (device_of(stream) != event->device) {
        violation(
            "cudaEventRecord: the event is of device %d, the stream of device %d", event->device, device_of(stream));
        return failed(cudaErrorInvalidResourceHandle);
    }
    event->is_recorded = true;
    event->is_captured = is_capturing(stream);
    if (event->is_captured) {
        event->capture = stream->capture;
        event->frontier = stream->frontier;
        return stream->capture->error;
    }
    const auto time = std::make_shared<double>(0.0);
    const cudaError_t error = enqueue(stream, "cudaEventRecord", [time] { *time = now(); });
    event->milliseconds = time;
    event->ticket = last_of(stream);
    return error;
}

// An event that was never recorded is not waited for, as CUDA has it: so a loop's first turn needs no case of its own.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
    Locked locked(device_lock);
    if (!is_stream(stream, "cudaStreamWaitEvent") || !events().check(event, "cudaStreamWaitEvent")) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    if (!event->is_recorded) {
        return cudaSuccess;
    }
    if (const auto capture = event->is_captured ? event->capture.lock() : nullptr) {
        return wait_in_capture(stream, event, capture);
    }
    if (event->is_captured) {
        return check_event(event, "cudaStreamWaitEvent");
    }
    if (is_capturing(stream)) {
        return refuse_in_capture(*stream->capture, cudaErrorStreamCaptureIsolation, "cudaStreamWaitEvent");
    }
    push(stream, {{event->ticket}, [] { return true; }});
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    Locked locked(device_lock);
    const cudaError_t error = check_event(event, "cudaEventSynchronize");
    if (error != cudaSuccess) {
        return error;
    }
    ++counts.synchronisations;
    wait_for(event->ticket);
    return take_late_error();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    Locked locked(device_lock);
    const cudaError_t error = check_event(event, "cudaEventQuery");
    if (error != cudaSuccess) {
        return error;
    }
    if (!event->ticket.is_reached()) {
        run_some();  // time goes on while a program asks
    }
    return event->ticket.is_reached() ? take_late_error() : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    Locked locked(device_lock);
    for (const cudaEvent_t event : {start, end}) {
        const cudaError_t error = check_event(event, "cudaEventElapsedTime");
        if (error != cudaSuccess) {
            return error;
        }
        if (!event->is_recorded || !event->has_time) {
            violation("cudaEventElapsedTime: an event was not recorded, or was made without a time");
            return failed(cudaErrorInvalidResourceHandle);
        }
        if (!event->ticket.is_reached()) {
            return failed(cudaErrorNotReady);
        }
    }
    *milliseconds = float(*end->milliseconds - *start->milliseconds);
    return cudaSuccess;
}

}  // extern "C"
