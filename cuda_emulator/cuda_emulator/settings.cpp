// How the emulated device behaves: words of the variable `STAGED_CUDA_EMULATOR`, or of `emulator_configure`.

#include "emulator.h"

#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>

namespace emulator {

namespace {

constexpr int MAX_DEVICES = 16;
constexpr size_t DEFAULT_MEMORY = size_t(16) << 30;

constexpr Settings DEFAULT = {false, ThreadOrder::forward, 0, 1, DEFAULT_MEMORY, true, true};

Settings now = DEFAULT;
bool chosen;  // by a call, or by the variable once it was read
std::mt19937 generator;

// A number, with K, M or G after it for powers of 1024; false for anything else.
bool parse_number(const std::string &text, size_t &number) {
    char *end = nullptr;
    if (text.empty() || text[0] < '0' || text[0] > '9') {
        return false;
    }
    number = size_t(strtoull(text.c_str(), &end, 10));
    const char *const powers = "KMG";
    if (const char *power = *end == '\0' ? nullptr : strchr(powers, *end)) {
        number <<= 10 * (power - powers + 1);
        ++end;
    }
    return *end == '\0';
}

bool parse_word(const std::string &word, Settings &wanted) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
        if (word == "eager" || word == "lazy") {
            wanted.lazy = word == "lazy";
        } else if (word == "forward") {
            wanted.threads = ThreadOrder::forward;
        } else if (word == "reverse") {
            wanted.threads = ThreadOrder::reverse;
        } else if (word == "shuffled") {
            wanted.threads = ThreadOrder::shuffled;
        } else if (word == "no-algorithms") {
            wanted.algorithms = false;
        } else if (word == "no-engines") {
            wanted.engines = false;
        } else {
            return false;
        }
        return true;
    }
    const std::string name = word.substr(0, equals);
    size_t number = 0;
    if (!parse_number(word.substr(equals + 1), number)) {
        return false;
    }
    if (name == "seed") {
        wanted.seed = unsigned(number);
    } else if (name == "devices" && number <= MAX_DEVICES) {
        wanted.devices = int(number);
    } else if (name == "memory") {
        wanted.memory = number;
    } else {
        return false;
    }
    return true;
}

// NULL, or what is wrong.
const char *configure(const char *words) {
    static auto &complaint = *new std::string;
    Settings wanted = DEFAULT;
    std::istringstream stream(words);
    for (std::string word; stream >> word;) {
        if (!parse_word(word, wanted)) {
            complaint = "`" + word + "` means nothing: there are eager, lazy, forward, reverse, shuffled, seed=N, "
                        "devices=N (at most " + std::to_string(MAX_DEVICES) + "), memory=BYTES (also 500M, 2G), "
                        "no-algorithms, no-engines";
            return complaint.c_str();
        }
    }
    now = wanted;
    generator.seed(now.seed);
    chosen = true;
    return nullptr;
}

}  // namespace

const Settings &settings() {
    if (!chosen) {
        const char *words = getenv("STAGED_CUDA_EMULATOR");
        if (const char *complaint = configure(words ? words : "")) {
            violation("STAGED_CUDA_EMULATOR: %s", complaint);
            now.devices = 0;  // so that nothing runs otherwise than was asked for
            chosen = true;
        }
    }
    return now;
}

size_t random_number(size_t count) {
    return count <= 1 ? 0 : size_t(generator()) % count;
}

}  // namespace emulator

using namespace emulator;

extern "C" const char *emulator_configure(const char *words) {
    Locked locked(device_lock);
    for (int device = 0; device < settings().devices; ++device) {
        wait_for_device(device);
    }
    begin_anew();
    return configure(words);
}
