"""Draws by rejection in C: the numbers of `staged/library/draws/rejection.py`, an element at a time.

Each takes (seed, stream, counter, parameters, element), and has the formulas and constants of the reference there.

Tested by `tests/ops/test_rejection.py`.
"""

from __future__ import annotations

import math

from staged.code.support.library import SupportFunction, made_of

_LOGS = ("st_log_f64", "st_log1p_f64", "st_exp_f64")

_ATTEMPT = SupportFunction(
    "void",
    "st_random_attempt",
    """\
(uint32_t words[8], int64_t seed, int64_t stream, int64_t counter, int64_t element, int64_t attempt) {
    st_random_block(words, seed, stream + 2 * attempt, counter, element);
    st_random_block(words + 4, seed, stream + 2 * attempt + 1, counter, element);
}
""",
    ("st_random_block",),
    "// The words of one attempt at an element: each has streams of its own.\n",
)

_GAMMA = SupportFunction(
    "double",
    "st_log_gamma_draw_f64",
    f"""\
(int64_t seed, int64_t stream, int64_t counter, double alpha, int64_t element) {{
    if (!(alpha > 0.0 && alpha <= 0x1.fffffffffffffp1023)) {{
        return st_log_f64(-1.0);
    }}
    const double d = (alpha < 1.0 ? alpha + 1.0 : alpha) - 1.0 / 3.0, c = __builtin_sqrt(9.0 * d);
    double boost = 0.0;
    for (int64_t attempt = 0;; ++attempt) {{
        uint32_t words[8];
        st_random_attempt(words, seed, stream, counter, element, attempt);
        if (attempt == 0 && alpha < 1.0) {{  // a draw of alpha + 1, and a power of an evenly spread number
            boost = st_log_f64(st_unit_f64(words[6], words[7]) + 0x1p-53) / alpha;
        }}
        const double radius = __builtin_sqrt(-2.0 * st_log_f64(st_unit_f64(words[0], words[1]) + 0x1p-53));
        const double z = radius * st_cos_f64({2.0 * math.pi!r} * st_unit_f64(words[2], words[3]));
        const double w = 1.0 + z / c, v = w * w * w;
        if (w > 0.0) {{
            const double log_v = st_log_f64(v), u = st_unit_f64(words[4], words[5]) + 0x1p-53;
            if (st_log_f64(u) < 0.5 * z * z + d * (1.0 - v + log_v)) {{
                return st_log_f64(d) + log_v + boost;
            }}
        }}
    }}
}}
""",
    ("st_random_attempt", "st_unit_f64", "__builtin_sqrt", "st_log_f64", "st_cos_f64"),
    "// The logarithm of a gamma distributed number (Marsaglia and Tsang); NaN where alpha is none.\n",
)

_TAIL = SupportFunction(
    "double",
    "st_stirling_tail",
    """\
(double k) {
    const double tails[10] = {
        0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.0207906721037650, 0.0166446911898211,
        0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.0092554621827127, 0.0083305634333631,
    };
    if (k < 10.0) {
        return tails[k > 0.0 ? (int)k : 0];
    }
    const double w = 1.0 / (k + 1.0);
    return w * (1.0 / 12.0 - w * w * (1.0 / 360.0 - w * w / 1260.0));
}
""",
    comment="// The error of Stirling's formula for log k!.\n",
)

_POISSON = SupportFunction(
    "int64_t",
    "st_poisson_draw_i64",
    f"""\
(int64_t seed, int64_t stream, int64_t counter, double rate, int64_t element) {{
    if (!(rate >= 0.0 && rate <= 0x1p53)) {{
        return -1;
    }}
    uint32_t words[8];
    if (rate < 10.0) {{  // one probability after the other
        st_random_attempt(words, seed, stream, counter, element, 0);
        const double u = st_unit_f64(words[0], words[1]);
        double share = st_exp_f64(-rate), total = share;
        int64_t k = 0;
        while (u > total && k < 199) {{
            ++k;
            share = share * (rate / (double)k);
            total = total + share;
        }}
        return k;
    }}
    const double b = 0.931 + 2.53 * __builtin_sqrt(rate), a = 0.02483 * b - 0.059;
    for (int64_t attempt = 0;; ++attempt) {{
        st_random_attempt(words, seed, stream, counter, element, attempt);
        const double u = st_unit_f64(words[0], words[1]) - 0.5, v = st_unit_f64(words[2], words[3]) + 0x1p-53;
        const double side = 0.5 - (u < 0.0 ? -u : u);
        const double place = (2.0 * a / side + b) * u + rate + 0.43;
        if (!(place >= 0.0 && place < 0x1p62)) {{
            continue;
        }}
        const int64_t whole = (int64_t)place;
        if (side >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2.0)) {{
            return whole;
        }}
        if (side < 0.013 && v > side) {{
            continue;
        }}
        const double k = (double)whole;
        const double height = st_log_f64(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (side * side) + b));
        const double gap = k + 1.0 - rate;
        const double chance = gap - k * st_log1p_f64(gap / rate) - 0.5 * st_log_f64(k + 1.0) -
                              {0.5 * math.log(2.0 * math.pi)!r} - st_stirling_tail(k);
        if (height <= chance) {{
            return whole;
        }}
    }}
}}
""",
    ("st_random_attempt", "st_unit_f64", "st_stirling_tail", "__builtin_sqrt", *_LOGS),
    "// A number of events whose mean is `rate` (Hoermann's PTRS); -1 where it is none.\n",
)

_BINOMIAL = SupportFunction(
    "int64_t",
    "st_binomial_draw_i64",
    """\
(int64_t seed, int64_t stream, int64_t counter, double n, double p, int64_t element) {
    if (!(n >= 0.0 && n <= 0x1p53 && p >= 0.0 && p <= 1.0)) {
        return -1;
    }
    const double q = p > 0.5 ? 1.0 - p : p;  // of the rarer of the two, and mirrored
    const double odds = q / (1.0 - q);
    uint32_t words[8];
    double k = 0.0;
    if (n * q < 10.0) {  // one probability after the other
        st_random_attempt(words, seed, stream, counter, element, 0);
        const double u = st_unit_f64(words[0], words[1]);
        double share = st_exp_f64(n * st_log1p_f64(-q)), total = share;
        while (u > total && k < 199.0 && k < n) {
            k += 1.0;
            share = share * ((n - k + 1.0) / k * odds);
            total = total + share;
        }
        return (int64_t)(p > 0.5 ? n - k : k);
    }
    const double spread = __builtin_sqrt(n * q * (1.0 - q));
    const double b = 1.15 + 2.53 * spread, a = 0.0248 * b + 0.01 * q - 0.0873;
    const double m = (double)(int64_t)((n + 1.0) * q);
    for (int64_t attempt = 0;; ++attempt) {
        st_random_attempt(words, seed, stream, counter, element, attempt);
        const double u = st_unit_f64(words[0], words[1]) - 0.5, v = st_unit_f64(words[2], words[3]) + 0x1p-53;
        const double side = 0.5 - (u < 0.0 ? -u : u);
        const double place = (2.0 * a / side + b) * u + n * q + 0.5;
        if (!(place >= 0.0 && place < n + 1.0)) {
            continue;
        }
        k = (double)(int64_t)place;
        if (side >= 0.07 && v <= 0.92 - 4.2 / b) {
            break;
        }
        const double height = st_log_f64(v * (2.83 + 5.1 / b) * spread / (a / (side * side) + b));
        const double limit = (m + 0.5) * st_log_f64((m + 1.0) / (odds * (n - m + 1.0))) +
                             (n + 1.0) * st_log_f64((n - m + 1.0) / (n - k + 1.0)) +
                             (k + 0.5) * st_log_f64(odds * (n - k + 1.0) / (k + 1.0)) + st_stirling_tail(m) +
                             st_stirling_tail(n - m) - st_stirling_tail(k) - st_stirling_tail(n - k);
        if (height <= limit) {
            break;
        }
    }
    return (int64_t)(p > 0.5 ? n - k : k);
}
""",
    ("st_random_attempt", "st_unit_f64", "st_stirling_tail", "__builtin_sqrt", *_LOGS),
    "// A number of successes in n trials of probability p (Hoermann's BTRS); -1 where one is none.\n",
)

SNIPPETS = (
    made_of("st_random_attempt", _ATTEMPT, needs=("philox", "st_uniform_f64")),
    made_of("st_stirling_tail", _TAIL),
    made_of("st_log_gamma_draw_f64", _GAMMA, needs=("st_random_attempt", "st_log_f64", "st_cos_f64")),
    made_of("st_poisson_draw_i64", _POISSON, needs=("st_random_attempt", "st_stirling_tail", *_LOGS)),
    made_of("st_binomial_draw_i64", _BINOMIAL, needs=("st_random_attempt", "st_stirling_tail", *_LOGS)),
)
