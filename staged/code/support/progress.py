"""Progress bars that a program draws itself; `staged/call/progress_bar.py` is the Python side, with the same layout.

Tested by `tests/progress/test_c_progress.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers

_PROGRESS = """\
// ---- progress bars ---------------------------------------------------------------------------
// A bar is drawn where `host->live` says that redrawn text makes sense, at most ten times a second.
typedef struct st_progress {
    char label[64];
    char values[80];  // what is shown behind the bar
    int64_t done;
    int64_t total;  // -1: unknown
    double began;   // seconds of a monotonic clock
    double drawn;
} st_progress;

// Put seconds as 0:07, 12:34 or 1:02:03.
static void st_put_time(st_text *text, double seconds) {
    const long long whole = (long long)seconds;
    if (whole >= 3600) {
        st_put_format(text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
    } else {
        st_put_format(text, "%lld:%02lld", whole / 60, whole % 60);
    }
}

// `epoch 1  42% [########............] 420/1000 0:12<0:17 35.2/s loss 0.1234`, `seconds` after the start.
static void st_put_progress(st_text *text, const st_progress *bar, double seconds) {
    st_put_format(text, "%s%s", bar->label, bar->label[0] == '\\0' ? "" : " ");
    if (bar->total >= 0) {
        const double part = bar->total == 0 ? 1.0 : (double)bar->done / (double)bar->total;
        st_put_format(text, "%3lld%% [", (long long)(100.0 * part));
        for (int32_t i = 0; i < 20; ++i) {
            st_put(text, i < (int32_t)(20.0 * part) ? "#" : ".", 1);
        }
        st_put_format(text, "] %lld/%lld ", (long long)bar->done, (long long)bar->total);
    } else {
        st_put_format(text, "%lld ", (long long)bar->done);
    }
    st_put_time(text, seconds);
    if (bar->done > 0 && seconds > 0.0) {
        const double rate = (double)bar->done / seconds;
        if (bar->total >= 0) {
            st_put(text, "<", 1);
            st_put_time(text, (double)(bar->total - bar->done) / rate);
        }
        st_put_format(text, rate >= 100.0 ? " %.0f/s" : rate >= 1.0 ? " %.1f/s" : " %.2f/s", rate);
    }
    st_put_format(text, "%s%s", bar->values[0] == '\\0' ? "" : " ", bar->values);
}

__attribute__((unused)) static void st_progress_draw(st_host *host, st_progress *bar) {
    enum { WIDTH = 79 };
    const double now = st_clock();
    st_text text;
    st_text_begin(&text, NULL);
    st_put(&text, "\\r", 1);
    st_put_progress(&text, bar, now - bar->began);
    // At most WIDTH characters; the bytes behind the first of a character of UTF-8 do not count.
    int32_t end = 1, columns = 0;
    for (; end < text.length; ++end) {
        const bool begins = (text.data[end] & 0xC0) != 0x80;
        if (begins && columns == WIDTH) {
            break;
        }
        columns += begins;
    }
    text.length = end;
    for (; columns < WIDTH; ++columns) {
        st_put(&text, " ", 1);
    }
    host->live = 1;
    st_write(host, text.data, text.length);
    st_flush(host);
    host->live = 2;
    bar->drawn = now;
}

// Put a text together in `to`, of `capacity` bytes, cut where it is too long.
static void st_progress_text(char *to, int32_t capacity, const char *format, va_list *values) {
    st_text text;
    st_text_begin(&text, NULL);
    st_put_values(&text, format, values);
    int32_t length = text.length < capacity ? text.length : capacity - 1;
    while (length < text.length && length > 0 && (text.data[length] & 0xC0) == 0x80) {
        --length;  // no character is cut in two
    }
    memcpy(to, text.data, (size_t)length);
    to[length] = '\\0';
}

// Begin a bar; its label has a format like that of `st_print`.
__attribute__((unused, format(printf, 4, 5)))
static void st_progress_start(st_host *host, st_progress *bar, int64_t total, const char *format, ...) {
    bar->done = 0;
    bar->total = total;
    bar->values[0] = '\\0';
    va_list values;
    va_start(values, format);
    st_progress_text(bar->label, (int32_t)sizeof bar->label, format, &values);
    va_end(values);
    if (host->live != 0) {
        bar->began = st_clock();
        st_progress_draw(host, bar);
    }
}

// Count to `done`; whether it is time to draw.
__attribute__((unused)) static bool st_progress_due(const st_host *host, st_progress *bar, int64_t done) {
    bar->done = done;
    return host->live != 0 && (done == bar->total || st_clock() - bar->drawn >= 0.1);
}

// Draw, with these values behind the bar.
__attribute__((unused, format(printf, 3, 4)))
static void st_progress_update(st_host *host, st_progress *bar, const char *format, ...) {
    va_list values;
    va_start(values, format);
    st_progress_text(bar->values, (int32_t)sizeof bar->values, format, &values);
    va_end(values);
    st_progress_draw(host, bar);
}

// End a bar: leave its last state on a line of its own, or nothing.
__attribute__((unused)) static void st_progress_end(st_host *host, st_progress *bar, bool leave) {
    if (host->live == 0) {
        return;
    }
    if (leave) {
        st_progress_draw(host, bar);
        host->live = 1;
        st_write(host, "\\n", 1);
    } else if (host->live > 1) {
        st_write(host, "\\r", 1);  // wipes the bar first
        st_flush(host);
    }
}
"""

SNIPPETS = (
    Snippet(
        "progress",
        _PROGRESS,
        needs=("write", "put_format", "clock"),
        includes=headers("stdarg", "stdbool", "stdint", "string"),
    ),
)
