"""The parts of `main.c` that are the same for every program: flags, arrays, the folder, threads.

Tested by `tests/backends/test_export.py`.
"""

from __future__ import annotations

ENDING = r"""
static const char *program;  // what the user calls it

// Say what is wrong and end: with 2 where the arguments are wrong, with 1 where the system refuses something.
__attribute__((noreturn, format(printf, 2, 3))) static void give_up(int status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    (void)fflush(stdout);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, values);
    fprintf(stderr, "\n");
    va_end(values);
    exit(status);
}

// Text that could not be printed (a full disk, a closed pipe) is an error, too.
static void finish_output(void) {
    const bool failed = ferror(stdout) != 0;
    errno = 0;
    if (fclose(stdout) != 0 || failed) {
        give_up(1, "standard output could not be written%s%s", errno == 0 ? "" : ": ",
                errno == 0 ? "" : strerror(errno));
    }
}
"""

FLAGS = r"""
// Put each flag's value into the table; whether --help is among them.
static bool parse_flags(int argc, char **argv) {
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--help") == 0) {
            return true;
        }
        const char *const name = argv[i] + (argv[i][0] == '-' && argv[i][1] == '-' ? 2 : 0);
        if (name == argv[i]) {
            give_up(2, "what is %s? --help lists the flags", argv[i]);
        }
        const size_t length = strcspn(name, "=");
        size_t k = 0;
        while (k < FLAGS && (strlen(flags[k].name) != length || strncmp(flags[k].name, name, length) != 0)) {
            ++k;
        }
        if (k == FLAGS) {
            give_up(2, "there is no flag --%.*s; --help lists the flags", (int)length, name);
        }
        if (flags[k].value != NULL) {
            give_up(2, "--%s is given twice", flags[k].name);
        }
        if (name[length] == '=') {
            flags[k].value = name + length + 1;
        } else if (i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0) {
            flags[k].value = argv[++i];
        } else {
            give_up(2, "--%s has no value; one that begins with -- is given as --%s=VALUE", flags[k].name,
                    flags[k].name);
        }
    }
    return false;
}

static void show_help(void) {
    printf("usage: %s [flags]\n", program);
    for (size_t k = 0; k < FLAGS; ++k) {
        printf("  --%s  %s\n", flags[k].name, flags[k].what);
    }
}

// The value of a flag; NULL where it is not given.
static const char *given(const char *name) {
    size_t k = 0;
    while (strcmp(flags[k].name, name) != 0) {
        ++k;
    }
    return flags[k].value;
}

__attribute__((unused)) static const char *needed(const char *name) {
    const char *const value = given(name);
    if (value == NULL) {
        give_up(2, "--%s is missing; --help lists the flags", name);
    }
    return value;
}

__attribute__((unused)) static int64_t integer_flag(const char *name, int64_t least, int64_t most) {
    const char *const text = needed(name);
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || text[strspn(text, "+-0123456789")] != '\0') {
        give_up(2, "--%s: expected an integer, got %s", name, text);
    }
    if (errno == ERANGE || value < least || value > most) {
        give_up(2, "--%s: %s is not between %lld and %lld", name, text, (long long)least, (long long)most);
    }
    return (int64_t)value;
}

// A number that may be beyond INT64_MAX.
__attribute__((unused)) static uint64_t unsigned_flag(const char *name, uint64_t least, uint64_t most) {
    const char *const text = needed(name);
    char *end = NULL;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || text[strspn(text, "+-0123456789")] != '\0') {
        give_up(2, "--%s: expected an integer, got %s", name, text);
    }
    if (errno == ERANGE || (value != 0 && strchr(text, '-') != NULL) || value < least || value > most) {
        give_up(2, "--%s: %s is not between %llu and %llu", name, text, (unsigned long long)least,
                (unsigned long long)most);
    }
    return (uint64_t)value;
}

__attribute__((unused)) static bool bool_flag(const char *name) {
    const char *const text = needed(name);
    const bool is_true = strcmp(text, "1") == 0 || strcmp(text, "true") == 0;
    if (!is_true && strcmp(text, "0") != 0 && strcmp(text, "false") != 0) {
        give_up(2, "--%s: expected 0, 1, false or true, got %s", name, text);
    }
    return is_true;
}

// A number, inf or nan, whose size is at most `most`.
__attribute__((unused)) static double real_flag(const char *name, double most) {
    const char *const text = needed(name);
    char *end = NULL;
    errno = 0;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || text[strspn(text, "+-.0123456789eEinftyaINFTYA")] != '\0') {
        give_up(2, "--%s: expected a number, got %s", name, text);
    }
    const double size = value < 0.0 ? -value : value;
    if (size > most && (errno == ERANGE || size <= DBL_MAX)) {
        give_up(2, "--%s: %s is larger than any number of its type", name, text);
    }
    return value;
}
"""

ARRAYS = r"""
static npy_array inputs[FLAGS];
static int input_count;

__attribute__((unused)) static void *array_flag(const char *name, const char *descr, size_t item, int axes,
        const int64_t *shape) {
    const char *const path = needed(name);
    npy_array *const array = &inputs[input_count++];
    const char *const problem = npy_read(path, descr, item, axes, shape, array);
    if (problem != NULL) {
        give_up(2, "--%s: %s: %s", name, path, problem);
    }
    return array->data;
}

__attribute__((unused)) static void write_result(const char *folder, const char *name, const char *descr, size_t item,
        int axes,
                                                 const int64_t *shape, const void *data) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s.npy", folder, name) >= (int)sizeof path) {
        give_up(1, "--out: %s is too long a path", folder);
    }
    const char *const problem = npy_write(path, descr, item, axes, shape, data);
    if (problem != NULL) {
        give_up(1, "%s: %s", path, problem);
    }
}

static volatile int stop;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    stop = 1;
}

__attribute__((unused)) static void *allocate(size_t bytes) {
    // Rounded up: aligned_alloc wants a multiple of the alignment. Zeroed: the program counts on it once.
    const size_t rounded = (bytes + 64) / 64 * 64;
    void *memory = aligned_alloc(64, rounded);
    if (memory == NULL) {
        give_up(1, "cannot get %zu bytes of memory", rounded);
    }
    return memset(memory, 0, rounded);
}
"""

CORES = r"""
// How many threads can work at once: the processor cores that this process may use.
static int usable_cores(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
        count = CPU_COUNT(&cores);
    }
#endif
    return count < 1 ? 1 : (int)count;
}
"""
FOLDER = r"""
// The folder of this program, with the files that belong to it.
static const char *own_folder(void) {
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0 && strlen(program) < sizeof path) {  // not on Linux
        length = (ssize_t)strlen(program);
        memcpy(path, program, (size_t)length);
    }
    path[length < 0 ? 0 : length] = '\0';
    char *const slash = strrchr(path, '/');
    if (slash == NULL) {
        return ".";
    }
    *slash = '\0';
    return path;
}
"""
