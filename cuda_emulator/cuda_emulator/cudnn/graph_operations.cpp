// The operations of cuDNN's graphs on the emulated device, one after the other: virtual tensors are arrays as well.
//
// What a fused kernel keeps in registers is computed here with the same types: f32, rounded to a tensor's type where an
// operation writes one.

#include "graph.h"

#include <cmath>
#include <cstring>
#include <string>

namespace emulator {

int64_t GraphTensor::count() const {
    int64_t product = 1;
    for (const int64_t extent : extents) {
        product *= extent;
    }
    return product;
}

size_t GraphTensor::element_bytes() const {
    return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ? 2 : type == CUDNN_DATA_BOOLEAN ? 1 : 4;
}

size_t GraphTensor::bytes() const {
    int64_t last = 0;
    for (size_t axis = 0; axis < extents.size(); ++axis) {
        last += (extents[axis] - 1) * strides[axis];
    }
    return size_t(last + 1) * element_bytes();
}

int64_t GraphTensor::offset(int64_t index) const {
    int64_t sum = 0;
    for (size_t axis = extents.size(); axis-- > 0;) {
        sum += index % extents[axis] * strides[axis];
        index /= extents[axis];
    }
    return sum;
}

bool GraphTensor::has_extents(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return extents == std::vector<int64_t>{a, b, c, d};
}

bool GraphTensor::is_same_as(const GraphTensor &other) const {
    return type == other.type && extents == other.extents && strides == other.strides &&
           alignment == other.alignment && is_virtual == other.is_virtual && by_value == other.by_value;
}

// ---- elements ----

namespace {

float bfloat16_value(uint16_t bits) {
    const uint32_t wide = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

uint16_t bfloat16_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (std::isnan(value)) {
        return uint16_t(bits >> 16 | 0x40);
    }
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float sign = bits >> 15 ? -1.0f : 1.0f;
    if (exponent == 31) {
        return fraction ? NAN : sign * INFINITY;
    }
    return sign * (exponent ? std::ldexp(1024.0f + float(fraction), exponent - 25) : std::ldexp(float(fraction), -24));
}

uint16_t half_bits(float value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const float size = std::fabs(value);
    if (std::isnan(value)) {
        return uint16_t(sign | 0x7e00);
    }
    if (size >= 65520.0f) {
        return uint16_t(sign | 0x7c00);
    }
    if (size < std::ldexp(1.0f, -14)) {
        return uint16_t(sign | uint16_t(std::nearbyint(std::ldexp(size, 24))));
    }
    int exponent;
    const float scaled = std::nearbyint(std::ldexp(std::frexp(size, &exponent), 11));  // 1024 to 2048
    return uint16_t(sign | uint16_t(((exponent + 13) << 10) + int(scaled)));
}

}  // namespace

double load_element(const void *address, cudnnDataType_t type, int64_t index) {
    switch (type) {
    case CUDNN_DATA_HALF:
        return half_value(static_cast<const uint16_t *>(address)[index]);
    case CUDNN_DATA_BFLOAT16:
        return bfloat16_value(static_cast<const uint16_t *>(address)[index]);
    case CUDNN_DATA_INT32:
        return static_cast<const int32_t *>(address)[index];
    default:
        return static_cast<const float *>(address)[index];
    }
}

void store_element(void *address, cudnnDataType_t type, int64_t index, double value) {
    switch (type) {
    case CUDNN_DATA_HALF:
        static_cast<uint16_t *>(address)[index] = half_bits(float(value));
        break;
    case CUDNN_DATA_BFLOAT16:
        static_cast<uint16_t *>(address)[index] = bfloat16_bits(float(value));
        break;
    case CUDNN_DATA_INT32:
        static_cast<int32_t *>(address)[index] = int32_t(value);
        break;
    default:
        static_cast<float *>(address)[index] = float(value);
    }
}

double rounded_to(cudnnDataType_t type, double value) {
    switch (type) {
    case CUDNN_DATA_HALF:
        return half_value(half_bits(float(value)));
    case CUDNN_DATA_BFLOAT16:
        return bfloat16_value(bfloat16_bits(float(value)));
    case CUDNN_DATA_INT32:
        return double(int32_t(value));
    case CUDNN_DATA_BOOLEAN:
        return value != 0.0;
    default:
        return float(value);
    }
}

// ---- operations ----

namespace {

using Extents = std::vector<int64_t>;

// The number of an operand's element for element `index` of the output: an extent of 1 is repeated, and one that
// divides the output's serves as many neighbours (heads of keys, for those of queries).
int64_t element_for(const Extents &own, const Extents &whole, int64_t index) {
    int64_t at[4], number = 0;
    for (size_t axis = 4; axis-- > 0;) {
        at[axis] = index % whole[axis] / (whole[axis] / own[axis]);
        index /= whole[axis];
    }
    for (size_t axis = 0; axis < 4; ++axis) {
        number = number * own[axis] + at[axis];
    }
    return number;
}

bool divides(const Extents &own, const Extents &whole, bool heads_only) {
    for (size_t axis = 0; axis < 4; ++axis) {
        const bool repeated = own[axis] == whole[axis] || own[axis] == 1;
        if (!repeated && (axis != 1 || !heads_only || whole[axis] % own[axis] != 0)) {
            return false;
        }
    }
    return true;
}

double point(const Operation &operation, double x, double b, double t) {
    const float first = float(x), second = float(b);
    switch (operation.mode) {
    case CUDNN_POINTWISE_ADD:
        return first + second;
    case CUDNN_POINTWISE_SUB:
        return first - second;
    case CUDNN_POINTWISE_MUL:
        return first * second;
    case CUDNN_POINTWISE_DIV:
        return first / second;
    case CUDNN_POINTWISE_EXP:
        return std::exp(first);
    case CUDNN_POINTWISE_LOG:
        return std::log(first);
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return t != 0.0 ? x : b;
    default:
        return x;
    }
}

size_t operands_of(cudnnPointwiseMode_t mode) {
    switch (mode) {
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_GEN_INDEX:
        return 1;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return 3;
    default:
        return 2;
    }
}

void pointwise(const Operation &operation, GraphValues &values, std::vector<double> &result) {
    const Extents &whole = operation.output.extents;
    int64_t inner = 1;
    for (size_t axis = size_t(operation.axis) + 1; operation.axis >= 0 && axis < 4; ++axis) {
        inner *= whole[axis];
    }
    for (size_t index = 0; index < result.size(); ++index) {
        if (operation.mode == CUDNN_POINTWISE_GEN_INDEX) {
            result[index] = double(int64_t(index) / inner % whole[size_t(operation.axis)]);
            continue;
        }
        double taken[3] = {};
        for (size_t number = 0; number < operation.inputs.size(); ++number) {
            const GraphTensor &input = operation.inputs[number];
            taken[number] = values[input.id][size_t(element_for(input.extents, whole, int64_t(index)))];
        }
        result[index] = point(operation, taken[0], taken[1], taken[2]);
    }
}

// (batch, heads, m, k) by (batch, heads or a divisor, k, n)
void matmul(const Operation &operation, GraphValues &values, std::vector<double> &result) {
    const GraphTensor &a = operation.inputs[0], &b = operation.inputs[1];
    const std::vector<double> &left = values[a.id], &right = values[b.id];
    const int64_t rows = a.extents[2], terms = a.extents[3], columns = b.extents[3];
    for (size_t index = 0; index < result.size(); ++index) {
        const int64_t column = int64_t(index) % columns, row = int64_t(index) / columns % rows;
        const int64_t head = int64_t(index) / columns / rows;
        const Extents own{b.extents[0], b.extents[1], 1, 1}, whole{a.extents[0], a.extents[1], 1, 1};
        const int64_t b_head = element_for(own, whole, head);
        float sum = 0.0f;
        for (int64_t step = 0; step < terms; ++step) {
            const int64_t term = (step + operation.first_term) % terms;
            const double l = left[size_t((head * rows + row) * terms + term)];
            sum += float(l) * float(right[size_t((b_head * terms + term) * columns + column)]);
        }
        result[index] = sum;
    }
}

void reduce(const Operation &operation, GraphValues &values, std::vector<double> &result) {
    const GraphTensor &x = operation.inputs[0];
    const bool adds = operation.reduction == CUDNN_REDUCE_TENSOR_ADD;
    const std::vector<double> &given = values[x.id];
    result.assign(result.size(), adds ? 0.0 : -INFINITY);
    for (size_t index = 0; index < given.size(); ++index) {
        double &to = result[size_t(element_for(operation.output.extents, x.extents, int64_t(index)))];
        to = adds ? double(float(to) + float(given[index])) : std::fmax(to, given[index]);
    }
}

// The same memory in other strides.
void view(const Operation &operation, GraphValues &values, std::vector<double> &result) {
    const GraphTensor &x = operation.inputs[0];
    const std::vector<double> &given = values[x.id];
    std::map<int64_t, double> memory;
    for (size_t index = 0; index < given.size(); ++index) {
        memory[x.offset(int64_t(index))] = given[index];
    }
    for (size_t index = 0; index < result.size(); ++index) {
        result[index] = memory.at(operation.output.offset(int64_t(index)));
    }
}

}  // namespace

bool is_well_formed(const Operation &operation, std::string &words) {
    const GraphTensor &y = operation.output;
    const auto fail = [&](const char *why) {
        words = why;
        return false;
    };
    for (const GraphTensor &tensor : operation.inputs) {
        if (tensor.extents.size() != 4) {
            return fail("a tensor has other than four axes");
        }
    }
    if (y.extents.size() != 4 || y.by_value) {
        return fail("the output is passed by value, or has other than four axes");
    }
    const GraphTensor &x = operation.inputs[0];
    switch (operation.kind) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: {
        const GraphTensor &b = operation.inputs[1];
        const bool fits = x.extents[3] == b.extents[2] && b.extents[0] == x.extents[0] &&
                          x.extents[1] % b.extents[1] == 0 &&
                          y.has_extents(x.extents[0], x.extents[1], x.extents[2], b.extents[3]);
        if (!fits) {
            return fail("the extents do not make a product");
        }
        return operation.computes == CUDNN_DATA_FLOAT || fail("products add up in f32");
    }
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        if (operation.reduction != CUDNN_REDUCE_TENSOR_ADD && operation.reduction != CUDNN_REDUCE_TENSOR_MAX) {
            return fail("the emulated device has sums and maxima alone");
        }
        return divides(y.extents, x.extents, true) || fail("the output does not have the input's extents, or 1");
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return (y.count() == x.count() && y.bytes() / y.element_bytes() == x.bytes() / x.element_bytes()) ||
               fail("the output has another number of elements");
    default:
        if (operation.inputs.size() != operands_of(operation.mode)) {
            return fail("the mode takes another number of operands");
        }
        if (operation.mode == CUDNN_POINTWISE_GEN_INDEX && (operation.axis < 0 || operation.axis > 3)) {
            return fail("CUDNN_ATTR_POINTWISE_AXIS is no axis");
        }
        if ((operation.mode == CUDNN_POINTWISE_CMP_GE) != (y.type == CUDNN_DATA_BOOLEAN)) {
            return fail("comparisons, and nothing else, make CUDNN_DATA_BOOLEAN");
        }
        if (operation.mode == CUDNN_POINTWISE_BINARY_SELECT && operation.inputs[2].type != CUDNN_DATA_BOOLEAN) {
            return fail("the choice is not CUDNN_DATA_BOOLEAN");
        }
        for (const GraphTensor &input : operation.inputs) {
            if (!divides(input.extents, y.extents, false)) {
                return fail("an operand does not broadcast to the output");
            }
        }
        return true;
    }
}

void carry_out(const Operation &operation, GraphValues &values) {
    std::vector<double> result(size_t(operation.output.count()));
    switch (operation.kind) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        matmul(operation, values, result);
        break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        reduce(operation, values, result);
        break;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        view(operation, values, result);
        break;
    default:
        pointwise(operation, values, result);
    }
    for (double &value : result) {
        value = rounded_to(operation.output.type, value);
    }
    values[operation.output.id] = std::move(result);
}

}  // namespace emulator
