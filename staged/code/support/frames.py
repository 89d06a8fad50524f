"""The store of a program for what is kept until it is read backwards: frames of calls, and sequences that travel.

In what C11 and C++17 have in common, as programs with a device need it.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers

_FRAMES = """\
// ---- frames of calls -----------------------------------------------------------------------------
// Memory given out in order and given back in the opposite one. It is in chunks that never move and are kept, so a
// program that repeats itself stops allocating. All zero: empty.
typedef struct st_chunk {
    struct st_chunk *before;
    struct st_chunk *next;
    int64_t begin;  // bytes in the chunks before
    int64_t bytes;
    int64_t used;
    unsigned char *data;
} st_chunk;

typedef struct st_frames {
    st_chunk *first;
    st_chunk *current;
} st_frames;

static_assert(sizeof(st_frames) <= 64, "the arena sets 64 bytes aside for it");

// The chunk that has room for `needed` bytes, current from now on; NULL where none has.
__attribute__((unused)) static st_chunk *st_frames_room(st_frames *frames, int64_t needed) {
    st_chunk *chunk = frames->current;
    while (chunk != NULL && chunk->bytes - chunk->used < needed) {
        chunk = chunk->next;
        if (chunk != NULL) {
            chunk->used = 0;
        }
    }
    frames->current = chunk == NULL ? frames->current : chunk;
    return chunk;
}

// Bytes of the chunk to add where none has room for `needed`: twice the current one's.
__attribute__((unused)) static int64_t st_frames_growth(const st_frames *frames, int64_t needed) {
    int64_t size = frames->current == NULL ? 1 << 16 : 2 * frames->current->bytes;
    size = size > 1 << 26 ? 1 << 26 : size;
    return size < needed ? needed : size;
}

// Add a chunk of `bytes` at `data`, behind the others; current from now on. NULL where there is no memory for its head.
__attribute__((unused)) static st_chunk *st_frames_add(st_frames *frames, unsigned char *data, int64_t bytes) {
    st_chunk *last = frames->current;
    while (last != NULL && last->next != NULL) {
        last = last->next;
    }
    st_chunk *const made = (st_chunk *)malloc(sizeof(st_chunk));
    if (made == NULL) {
        return NULL;
    }
    made->before = last;
    made->next = NULL;
    made->begin = last == NULL ? 0 : last->begin + last->bytes;
    made->bytes = bytes;
    made->used = 0;
    made->data = data;
    if (last == NULL) {
        frames->first = made;
    } else {
        last->next = made;
    }
    frames->current = made;
    return made;
}

// How much is in use now, for `st_frames_release`.
__attribute__((unused)) static int64_t st_frames_mark(const st_frames *frames) {
    return frames->current == NULL ? 0 : frames->current->begin + frames->current->used;
}

// A piece of memory, aligned to 64 bytes; NULL once `host` holds the report.
__attribute__((unused)) static void *st_frames_push(st_host *host, st_frames *frames, int64_t bytes) {
    const int64_t needed = (bytes + 63) / 64 * 64;
    st_chunk *chunk = st_frames_room(frames, needed);
    if (chunk == NULL) {
        const int64_t size = st_frames_growth(frames, needed);
        unsigned char *const data = (unsigned char *)aligned_alloc(64, (size_t)size);
        chunk = data == NULL ? NULL : st_frames_add(frames, data, size);
        if (chunk == NULL) {
            free(data);
            (void)st_fail(host, ST_MEMORY_ERROR, -1, "out of memory: %lld bytes are kept for a gradient, and %lld more",
                          (long long)st_frames_mark(frames), (long long)needed);
            return NULL;
        }
    }
    unsigned char *const place = chunk->data + chunk->used;
    chunk->used += needed;
    return place;
}

// Give back all that was given out since `mark`; the memory is kept for the next.
__attribute__((unused)) static void st_frames_release(st_frames *frames, int64_t mark) {
    st_chunk *chunk = frames->current;
    if (chunk == NULL) {
        return;
    }
    while (chunk->before != NULL && mark <= chunk->begin) {
        chunk = chunk->before;
    }
    if (mark - chunk->begin < chunk->used) {
        chunk->used = mark - chunk->begin;
    }
    frames->current = chunk;
}

// Give the memory itself back.
__attribute__((unused)) static void st_frames_free(st_frames *frames) {
    for (st_chunk *chunk = frames->first; chunk != NULL;) {
        st_chunk *const next = chunk->next;
        free(chunk->data);
        free(chunk);
        chunk = next;
    }
    frames->first = NULL;
    frames->current = NULL;
}
"""

_SEQUENCE = """\
// ---- sequences --------------------------------------------------------------------------------------
// What the turns of a loop have left, in the program's store. The elements of a sequence of sequences are
// `st_sequence`s.
typedef struct st_sequence {
    void *data;
    int64_t length;
} st_sequence;

// Room for `length` elements.
__attribute__((unused))
static int st_sequence_make(st_host *host, st_frames *frames, int64_t length, size_t bytes, st_sequence *made) {
    if (bytes != 0 && (size_t)length > ((size_t)INT64_MAX - 64) / bytes) {
        return st_fail(host, ST_MEMORY_ERROR, -1, "a loop keeps more for its gradient than can be addressed");
    }
    void *data = st_frames_push(host, frames, (int64_t)((size_t)length * bytes));
    if (data == NULL) {
        return ST_MEMORY_ERROR;
    }
    made->data = data;
    made->length = length;
    return ST_OK;
}

// Zeros as long as `like`, whose elements are sequences `depth` levels down, then `bytes` each.
__attribute__((unused)) static int st_sequence_zeros(st_host *host, st_frames *frames, st_sequence like, int depth,
        size_t bytes,
                                                     st_sequence *made) {
    const size_t item = depth > 0 ? sizeof(st_sequence) : bytes;
    if (st_sequence_make(host, frames, like.length, item, made) != ST_OK) {
        return host->error_kind;
    }
    if (depth == 0) {
        if (like.length > 0) {
            memset(made->data, 0, (size_t)like.length * bytes);
        }
        return ST_OK;
    }
    const st_sequence *const from = (const st_sequence *)like.data;
    st_sequence *const to = (st_sequence *)made->data;
    for (int64_t i = 0; i < like.length; ++i) {
        if (st_sequence_zeros(host, frames, from[i], depth - 1, bytes, &to[i]) != ST_OK) {
            return host->error_kind;
        }
    }
    return ST_OK;
}

// A copy of its own.
__attribute__((unused)) static int st_sequence_copy(st_host *host, st_frames *frames, st_sequence given, int depth,
        size_t bytes,
                                                    st_sequence *made) {
    const size_t item = depth > 0 ? sizeof(st_sequence) : bytes;
    st_sequence copy = {NULL, 0};
    if (st_sequence_make(host, frames, given.length, item, &copy) != ST_OK) {
        return host->error_kind;
    }
    if (depth == 0) {
        if (given.length > 0) {
            memcpy(copy.data, given.data, (size_t)given.length * bytes);
        }
    } else {
        const st_sequence *const from = (const st_sequence *)given.data;
        st_sequence *const to = (st_sequence *)copy.data;
        for (int64_t i = 0; i < given.length; ++i) {
            if (st_sequence_copy(host, frames, from[i], depth - 1, bytes, &to[i]) != ST_OK) {
                return host->error_kind;
            }
        }
    }
    *made = copy;
    return ST_OK;
}
"""


def _add(c_type: str, name: str) -> str:
    return f"""\
// Add `size` numbers to others; then elements of sequences to those of others, `depth` levels down.
__attribute__((unused)) static void st_add_{name}({c_type} *to, const {c_type} *from, int64_t size) {{
    for (int64_t i = 0; i < size; ++i) {{
        to[i] += from[i];
    }}
}}

__attribute__((unused)) static void st_sequence_add_{name}(st_sequence to, st_sequence from, int depth, int64_t size) {{
    if (depth == 0) {{
        st_add_{name}(({c_type} *)to.data, (const {c_type} *)from.data, from.length * size);
        return;
    }}
    for (int64_t i = 0; i < from.length; ++i) {{
        st_sequence_add_{name}(((st_sequence *)to.data)[i], ((const st_sequence *)from.data)[i], depth - 1, size);
    }}
}}
"""


_TAKE = """\
// Move what a stack holds from `first` on into the store.
__attribute__((unused)) static int st_sequence_take(st_host *host, st_frames *frames, st_stack *stack, int64_t first,
        size_t bytes,
                                                    st_sequence *made) {
    const int64_t length = stack->length - first;
    if (st_sequence_make(host, frames, length, bytes, made) != ST_OK) {
        return host->error_kind;
    }
    if (length > 0 && bytes > 0) {
        memcpy(made->data, stack->data + (size_t)first * bytes, (size_t)length * bytes);
    }
    stack->length = first;
    return ST_OK;
}
"""

_JOIN = """\
// Put the frames of a sequence where another has none; of sequences, `depth` levels down.
__attribute__((unused)) static void st_sequence_join(st_sequence to, st_sequence from, int depth) {
    for (int64_t i = 0; i < from.length; ++i) {
        if (depth > 0) {
            st_sequence_join(((st_sequence *)to.data)[i], ((const st_sequence *)from.data)[i], depth - 1);
        } else if (((void *const *)from.data)[i] != NULL) {
            ((void **)to.data)[i] = ((void *const *)from.data)[i];
        }
    }
}
"""

SNIPPETS = (
    Snippet("frames", _FRAMES, needs=("host", "fail"), includes=headers("assert", "stdint", "stdlib")),
    Snippet("sequence", _SEQUENCE, needs=("host", "fail", "frames"), includes=headers("stddef", "stdint", "string")),
    Snippet("sequence_join", _JOIN, needs=("sequence",)),
    Snippet("sequence_take", _TAKE, needs=("sequence", "stack"), includes=headers("string")),
    Snippet("sequence_add_f32", _add("float", "f32"), needs=("sequence",)),
    Snippet("sequence_add_f64", _add("double", "f64"), needs=("sequence",)),
)
