// The products of matrices of the emulated libraries: column-major, as BLAS has it.
#ifndef STAGED_EMULATED_MATRIX_H
#define STAGED_EMULATED_MATRIX_H

#include <cstdint>
#include <cstring>
#include <vector>

namespace emulator {

// What a float keeps as a factor in a product of TF32: 10 bits after the leading one, rounded to nearest, ties away
// from zero.
inline float round_to_tf32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000) {  // NaN and infinity stay
        bits = (bits + 0x1000) & 0xffffe000;
    }
    memcpy(&value, &bits, sizeof bits);
    return value;
}

inline double round_to_tf32(double value) {
    return value;
}

// A matrix of rows x columns in memory whose columns begin `ld` elements apart.
template <class T> struct Matrix {
    T *data;
    int64_t ld;

    T &at(int64_t row, int64_t column) const {
        return data[row + column * ld];
    }
};

// The elements of memory from a matrix's first to its last.
inline size_t extent(int64_t rows, int64_t columns, int64_t ld) {
    return rows == 0 || columns == 0 ? 0 : size_t(ld * (columns - 1) + rows);
}

// op(X), rows x columns, in memory of its own and packed.
template <class T>
std::vector<T> packed(Matrix<const T> X, bool transposed, int64_t rows, int64_t columns, bool tf32) {
    std::vector<T> copy(size_t(rows * columns));
    for (int64_t column = 0; column < columns; ++column) {
        for (int64_t row = 0; row < rows; ++row) {
            const T value = transposed ? X.at(column, row) : X.at(row, column);
            copy[size_t(row + column * rows)] = tf32 ? round_to_tf32(value) : value;
        }
    }
    return copy;
}

// op(A) op(B) (m x n, packed): every element adds its k products in order, whichever factor is transposed.
template <class T>
std::vector<T> product(
    Matrix<const T> A, bool transpose_a, Matrix<const T> B, bool transpose_b, int64_t m, int64_t n, int64_t k,
    bool tf32) {
    constexpr int64_t TOGETHER = 4;  // columns that share one pass over A
    const std::vector<T> a = packed(A, transpose_a, m, k, tf32), b = packed(B, transpose_b, k, n, tf32);
    std::vector<T> sums(size_t(m * n), T(0));
    for (int64_t first = 0; first < n; first += TOGETHER) {
        const int64_t last = first + TOGETHER < n ? first + TOGETHER : n;
        for (int64_t l = 0; l < k; ++l) {
            const T *column = &a[size_t(l * m)];
            for (int64_t j = first; j < last; ++j) {
                const T factor = b[size_t(l + j * k)];
                T *sum = &sums[size_t(j * m)];
                for (int64_t i = 0; i < m; ++i) {
                    sum[i] += column[i] * factor;
                }
            }
        }
    }
    return sums;
}

}  // namespace emulator

#endif
