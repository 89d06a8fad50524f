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
!    (void)fflush(stdout);
@    begin_message();
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, format, values);
    fprintf(stderr, "\n");
    va_end(values);
!    exit(status);
@    end_all_ranks(status);
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
// Where the value of a flag is stored; NULL for an unknown flag.
static const char **value_of(const char *name) {
    for (size_t k = 0; k < FLAGS; ++k) {
        if (strcmp(flags[k].name, name) == 0) {
            return &flags[k].value;
        }
    }
    const int number = npy_find(st_rows, name, false);
    return number >= 0 && (npy_item_at(st_rows, number).row->role & NPY_INPUT) != 0 ? &paths[number] : NULL;
}

// Store the value of each flag. Returns whether --help is among them.
static bool parse_flags(int argc, char **argv) {
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--help") == 0) {
            return true;
        }
        if (strncmp(argv[i], "--", 2) != 0) {
            give_up(2, "what is %s? --help lists the flags", argv[i]);
        }
        const char *const name = argv[i] + 2;
        char *const equals = strchr(argv[i], '=');
        if (equals != NULL) {
            *equals = '\0';
        }
        const char **const value = value_of(name);
        if (value == NULL) {
            give_up(2, "there is no flag --%s; --help lists the flags", name);
        }
        if (*value != NULL) {
            give_up(2, "--%s is given twice", name);
        }
        if (equals != NULL) {
            *value = equals + 1;
        } else if (i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0) {
            *value = argv[++i];
        } else {
            give_up(2, "--%s has no value; one that begins with -- is given as --%s=VALUE", name, name);
        }
    }
    return false;
}

static void show_help(void) {
    printf("usage: %s [flags]\n", program);
    for (const npy_row *row = st_rows; row->name != NULL; ++row) {
        if ((row->role & NPY_INPUT) == 0) {
            continue;
        }
        char header[NPY_LONGEST_HEADER];
        const size_t length = npy_describe(header, row) - strlen(", }");
        const char *const shape = strstr(header, "'shape': ") + strlen("'shape': ");
        printf("  --%s  %s %.*s, a .npy file", row->name, row->dtype, (int)(header + length - shape), shape);
        if (row->file != NULL) {
            printf(" (default: %s)", row->file);
        }
        if (row->layers > 1) {
            printf(" (* is 0 to %d)", row->layers - 1);
        }
        printf("\n");
    }
    for (size_t k = 0; k < FLAGS; ++k) {
        printf("  --%s  %s\n", flags[k].name, flags[k].what);
    }
@    for (const npy_size *size = npy_sizes; size < npy_sizes + NPY_DIMENSIONS; ++size) {
@        printf("  %s is a size of the files, %lld to %lld\n", size->name, (long long)size->least,
@               (long long)size->most);
@    }
}

// The value of a flag; NULL where it is not given.
static const char *given(const char *name) {
    return *value_of(name);
}
"""

NUMBERS = {
    "needed": r"""
static const char *needed(const char *name) {
    const char *const value = given(name);
    if (value == NULL) {
        give_up(2, "--%s is missing; --help lists the flags", name);
    }
    return value;
}
""",
    "integer_flag": r"""
static int64_t integer_flag(const char *name, int64_t least, int64_t most) {
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
""",
    "unsigned_flag": r"""
// A number that may be beyond INT64_MAX.
static uint64_t unsigned_flag(const char *name, uint64_t least, uint64_t most) {
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
""",
    "bool_flag": r"""
static bool bool_flag(const char *name) {
    const char *const text = needed(name);
    const bool is_true = strcmp(text, "1") == 0 || strcmp(text, "true") == 0;
    if (!is_true && strcmp(text, "0") != 0 && strcmp(text, "false") != 0) {
        give_up(2, "--%s: expected 0, 1, false or true, got %s", name, text);
    }
    return is_true;
}
""",
    "real_flag": r"""
// A number, inf or nan, whose size is at most `most`.
static double real_flag(const char *name, double most) {
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
""",
}
"""The functions that read numbers from flags, by name: a program has those that it needs."""

ARRAYS = r"""
static npy_array owned[ST_ARRAYS + 1];  // inputs from files, and the memory of results

static void *allocate(size_t bytes) {
    // Rounded up: aligned_alloc needs a multiple of the alignment. Zeroed: the program counts on it once.
    const size_t rounded = (bytes + 64) / 64 * 64;
    void *memory = aligned_alloc(64, rounded);
    if (memory == NULL) {
        give_up(1, "cannot get %zu bytes of memory", rounded);
    }
    return memset(memory, 0, rounded);
}

// Read the arrays that flags name.
static void read_arrays(void *args) {
    for (int number = 0; number < ST_ARRAYS; ++number) {
        const npy_item item = npy_item_at(st_rows, number);
        if (paths[number] != NULL) {
            const char *const problem = npy_read(paths[number], item.row, &owned[number]);
            if (problem != NULL) {
                give_up(2, "--%s: %s: %s", npy_name(item), paths[number], problem);
            }
            npy_set(args, item, owned[number].data);
        } else if ((item.row->role & NPY_INPUT) != 0 && item.row->file == NULL) {
            give_up(2, "--%s is missing; --help lists the flags", npy_name(item));
        }
    }
}

// Allocate the arrays of results.
static void allocate_results(void *args) {
    for (int number = 0; number < ST_ARRAYS; ++number) {
        const npy_item item = npy_item_at(st_rows, number);
        if ((item.row->role & NPY_INPUT) == 0 && npy_get(args, item) == NULL) {
            owned[number].data = allocate(npy_count(item.row) * item.row->item);
            npy_set(args, item, owned[number].data);
        }
    }
}

@// The arrays of all ranks, one after another, on rank 0. A replicated array is as it is.
@static void *gather(const npy_row *row, void *own) {
@    if (npy_parts(row) == 1) {
@        return own;
@    }
@    unsigned char *all = NULL;
@#ifdef ST_MPI
@    const size_t bytes = npy_count(row) * row->item, most = 1 << 30;  // MPI counts in ints
@    if (this_rank == 0) {
@        all = allocate(bytes * (size_t)rank_count);
@        memcpy(all, own, bytes);
@    }
@    for (size_t begin = 0; begin < bytes; begin += most) {
@        const int part = (int)(bytes - begin < most ? bytes - begin : most);
@        if (this_rank != 0) {
@            MPI_Send((unsigned char *)own + begin, part, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
@            continue;
@        }
@        for (int from = 1; from < rank_count; ++from) {
@            MPI_Recv(all + (size_t)from * bytes + begin, part, MPI_BYTE, from, 0, MPI_COMM_WORLD,
@                     MPI_STATUS_IGNORE);
@        }
@    }
@#endif
@    return all;
@}
@
static void write_results(const char *folder, const void *args) {
    for (int number = 0; number < ST_ARRAYS; ++number) {
        const npy_item item = npy_item_at(st_rows, number);
        if ((item.row->role & NPY_OUTPUT) == 0) {
            continue;
        }
@        void *const own = npy_get(args, item);
@        void *const data = gather(item.row, own);
@        if (this_rank != 0) {
@            continue;
@        }
        char path[4096];
        if (snprintf(path, sizeof path, "%s/%s.npy", folder, npy_name(item)) >= (int)sizeof path) {
            give_up(1, "--out: %s is too long a path", folder);
        }
!        const char *const problem = npy_write(path, item.row, npy_get(args, item));
@        const char *const problem = npy_write(path, item.row, data);
        if (problem != NULL) {
            give_up(1, "%s: %s", path, problem);
        }
@        if (data != own) {
@            free(data);
@        }
    }
}

static volatile int stop;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    stop = 1;
}
"""

SET_SIZE = r"""
// Set a size. Ends the program if a file has another one.
static void set_size(npy_size *size, int64_t value) {
    if (size->value >= 0 && size->value != value) {
        char dimensions[256];
        for (int k = 0, at = 0; k < NPY_DIMENSIONS && at < (int)sizeof dimensions; ++k) {
            at += snprintf(dimensions + at, sizeof dimensions - (size_t)at, "%s`%s` is %lld", k == 0 ? "" : ", ",
                           npy_sizes[k].name, (long long)npy_sizes[k].value);
        }
        give_up(2, "--%s: axis %d has %lld elements, `%s` must be %lld: %s", size->array, size->axis,
                (long long)size->value, size->name, (long long)value, dimensions);
    }
    size->value = value;
}
"""
"""The function for sizes that are expressions over dimensions."""

DEVICES = r"""
// Copy arrays to the devices that the program needs them on.
static void send_arrays(void *args) {
    for (int number = 0; number < ST_ARRAYS; ++number) {
        const npy_item item = npy_item_at(st_rows, number);
        if (item.row->device >= 0) {
            const size_t bytes = npy_count(item.row) * item.row->item;
            npy_set(args, item, to_device(item.row->device, npy_get(args, item), bytes));
        }
    }
}

// Free the memory on devices; results are fetched first if they are needed.
static void free_on_devices(void *args, bool is_needed) {
    for (int number = 0; number < ST_ARRAYS; ++number) {
        const npy_item item = npy_item_at(st_rows, number);
        if (item.row->device < 0) {
            continue;
        }
        void *const place = npy_get(args, item);
        if (is_needed && (item.row->role & NPY_OUTPUT) != 0) {
            npy_free(&owned[number]);
            owned[number].data = from_device(item.row->device, place, npy_count(item.row) * item.row->item);
            npy_set(args, item, owned[number].data);
        }
        free_on_device(place);
    }
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
