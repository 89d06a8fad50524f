// Graphs of the emulated device: the work of captured streams, written down once and replayed.
//
// What a launch was called with is copied when it is captured, so a replay sees the values of that time: a program that
// changes an argument between replays is found out.

#include "streams.h"

#include <algorithm>

using namespace emulator;

struct CUgraph_st {
    int number;
    std::shared_ptr<const std::vector<Node>> nodes;
};

struct CUgraphExec_st {
    int number;
    int device;
    std::shared_ptr<const std::vector<Node>> nodes;
};

namespace emulator {

namespace {

std::vector<std::shared_ptr<Capture>> &captures() {
    static auto &open = *new std::vector<std::shared_ptr<Capture>>;
    return open;
}

Handles<CUgraph_st> &graphs() {
    static auto &handles = *new Handles<CUgraph_st>("graph", &emulator_counts::live_graphs);
    return handles;
}

Handles<CUgraphExec_st> &executables() {
    static auto &handles = *new Handles<CUgraphExec_st>("executable graph", &emulator_counts::live_graphs);
    return handles;
}

void list_graphs(std::vector<std::string> &lines) {
    for (const auto &graph : graphs().all()) {
        lines.push_back("graph " + std::to_string(graph->number));
    }
    for (const auto &graph : executables().all()) {
        lines.push_back("executable graph " + std::to_string(graph->number));
    }
}

const bool listed = (add_census(list_graphs), true);

// Whether all nodes come before those of `frontier`, or are among them.
bool all_lead_to(const std::vector<Node> &nodes, const std::vector<size_t> &frontier) {
    std::vector<bool> leads(nodes.size(), false);
    for (const size_t node : frontier) {
        leads[node] = true;
    }
    for (size_t node = nodes.size(); node-- > 0;) {
        for (const size_t before : nodes[node].after) {
            leads[before] = leads[before] || leads[node];
        }
    }
    return std::all_of(leads.begin(), leads.end(), [](bool each) { return each; });
}

void end_capture(const std::shared_ptr<Capture> &capture) {
    for (const cudaStream_t stream : capture->streams) {
        stream->capture.reset();
        stream->frontier.clear();
    }
    auto &open = captures();
    open.erase(std::find(open.begin(), open.end(), capture));
}

// One replay: the nodes that have been done, and how many have not; those before `first` have.
struct Replay {
    std::shared_ptr<const std::vector<Node>> nodes;
    std::vector<bool> done;
    size_t left, first;

    // Does one node that may be done; whether it was the last.
    bool step() {
        std::vector<size_t> candidates;
        while (first < nodes->size() && done[first]) {
            ++first;
        }
        for (size_t node = first; node < nodes->size(); ++node) {
            const auto &after = (*nodes)[node].after;
            const auto is_done = [this](size_t before) { return done[before]; };
            if (!done[node] && std::all_of(after.begin(), after.end(), is_done)) {
                candidates.push_back(node);
                if (!settings().lazy) {
                    break;
                }
            }
        }
        if (!candidates.empty()) {
            const size_t node = candidates[random_number(candidates.size())];
            done[node] = true;
            --left;
            run_piece((*nodes)[node].piece);
        }
        return left == 0;
    }
};

}  // namespace

cudaError_t capture_piece(cudaStream_t stream, Piece piece) {
    Capture &capture = *stream->capture;
    if (capture.error == cudaSuccess) {
        capture.nodes.push_back({std::move(piece), stream->frontier});
        stream->frontier = {capture.nodes.size() - 1};
    }
    return capture.error == cudaSuccess ? cudaSuccess : failed(capture.error);
}

cudaError_t refuse_in_capture(Capture &capture, cudaError_t error, const char *what) {
    violation("%s: not while a stream is captured (%s)", what, cudaGetErrorName(error));
    capture.error = cudaErrorStreamCaptureInvalidated;
    return failed(error);
}

Capture *forbidding_capture() {
    for (const auto &capture : captures()) {
        const bool same_thread = capture->thread == std::this_thread::get_id();
        if (capture->mode == cudaStreamCaptureModeGlobal ||
            (capture->mode == cudaStreamCaptureModeThreadLocal && same_thread)) {
            return capture.get();
        }
    }
    return nullptr;
}

Capture *capture_on_device(int device) {
    for (const auto &capture : captures()) {
        for (const cudaStream_t stream : capture->streams) {
            if (stream->queue->device == device) {
                return capture.get();
            }
        }
    }
    return nullptr;
}

Capture *capture_with_blocking_streams(int device) {
    for (const auto &capture : captures()) {
        for (const cudaStream_t stream : capture->streams) {
            if (stream->queue->is_blocking && stream->queue->device == device) {
                return capture.get();
            }
        }
    }
    return nullptr;
}

}  // namespace emulator

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    Locked locked(device_lock);
    if (!is_stream(stream, "cudaStreamBeginCapture")) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    if (stream == nullptr || stream->capture) {
        const char *const why = stream ? "the stream is captured already" : "the null stream cannot be captured";
        violation("cudaStreamBeginCapture: %s", why);
        return failed(cudaErrorStreamCaptureUnsupported);
    }
    const auto capture = std::make_shared<Capture>();
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->streams.insert(stream);
    stream->capture = capture;
    captures().push_back(capture);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    static int made;
    Locked locked(device_lock);
    *graph = nullptr;
    if (stream == nullptr || !is_stream(stream, "cudaStreamEndCapture")) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    const auto capture = stream->capture;
    if (capture == nullptr || capture->origin != stream) {
        violation("cudaStreamEndCapture: no capture began in this stream");
        return failed(cudaErrorStreamCaptureUnmatched);
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
        violation("cudaStreamEndCapture: the capture began in another thread");
        return failed(cudaErrorStreamCaptureWrongThread);
    }
    const std::vector<size_t> frontier = stream->frontier;
    end_capture(capture);
    if (capture->error != cudaSuccess) {
        return failed(capture->error);
    }
    if (!all_lead_to(capture->nodes, frontier)) {
        violation("cudaStreamEndCapture: work of another stream was captured that this one does not wait for");
        return failed(cudaErrorStreamCaptureUnjoined);
    }
    auto nodes = std::make_shared<const std::vector<Node>>(std::move(capture->nodes));
    *graph = graphs().add(new CUgraph_st{++made, std::move(nodes)});
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    Locked locked(device_lock);
    if (!is_stream(stream, "cudaStreamIsCapturing")) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    *status = !is_capturing(stream)                       ? cudaStreamCaptureStatusNone
              : stream->capture->error == cudaSuccess ? cudaStreamCaptureStatusActive
                                                      : cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
}

// With `nodes` NULL, as programs ask for the number alone.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    Locked locked(device_lock);
    if (!graphs().check(graph, "cudaGraphGetNodes") || nodes != nullptr) {
        return failed(cudaErrorInvalidValue);
    }
    *count = graph->nodes->size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long) {
    static int made;
    Locked locked(device_lock);
    if (!graphs().check(graph, "cudaGraphInstantiate")) {
        return failed(cudaErrorInvalidValue);
    }
    *executable = executables().add(new CUgraphExec_st{++made, current_device(), graph->nodes});
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    Locked locked(device_lock);
    if (!executables().check(executable, "cudaGraphLaunch")) {
        return failed(cudaErrorInvalidValue);
    }
    if (!is_stream(stream, "cudaGraphLaunch")) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    if (is_capturing(stream)) {
        return refuse_in_capture(*stream->capture, cudaErrorStreamCaptureUnsupported, "cudaGraphLaunch");
    }
    if (check_lost() != cudaSuccess) {
        return check_lost();
    }
    const size_t count = executable->nodes->size();
    const auto replay = std::make_shared<Replay>(Replay{executable->nodes, std::vector<bool>(count, false), count, 0});
    ++counts.enqueued;
    push(stream, {{}, [replay] {
                      const bool begins = replay->left == replay->nodes->size();
                      counts.graph_launches += begins;
                      return replay->step();
                  }});
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    Locked locked(device_lock);
    if (!graphs().remove(graph, "cudaGraphDestroy")) {
        return failed(cudaErrorInvalidValue);
    }
    graph->nodes.reset();
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    Locked locked(device_lock);
    if (!executables().remove(executable, "cudaGraphExecDestroy")) {
        return failed(cudaErrorInvalidValue);
    }
    executable->nodes.reset();
    return cudaSuccess;
}

}  // extern "C"
