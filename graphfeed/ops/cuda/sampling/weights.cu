// One thread per edge, or per column.

#include "arrays.cuh"

struct Weights {
    const void *data;
    i64 bytes;
    // Weights are not negative, so that their bits are in the order of their values.
    __device__ i64 bits(i64 edge) const {
        const i64 one = 0x3FF0000000000000ll;
        return bytes == 8 ? ((const i64 *)data)[edge] : ((const unsigned char *)data)[edge] ? one : 0;
    }
};

union Bits {
    i64 bits;
    double value;
};

extern "C" __global__ void find_largest_weights(
    const void *indptr, i64 width, const void *weights, i64 weight_bytes, i64 columns, i64 edges, i64 *largest) {
    Ints starts = {indptr, width};
    Weights given = {weights, weight_bytes};
    EACH(edge, edges) {
        if (given.bits(edge) > 0) atomicMax(&largest[part_of(starts, columns, edge)], given.bits(edge));
    }
}

extern "C" __global__ void weights_to_units(
    const void *indptr, i64 width, const void *weights, i64 weight_bytes, i64 columns, i64 edges, const i64 *largest,
    i64 *units) {
    Ints starts = {indptr, width};
    Weights given = {weights, weight_bytes};
    EACH(edge, edges) {
        Bits weight = {given.bits(edge)};
        units[edge] = 0;
        if (weight.bits <= 0) continue;
        Bits most = {largest[part_of(starts, columns, edge)]};
        // Adding a half and truncating rounds to the nearest unit, as on the CPU.
        i64 own = (i64)(weight.value / most.value * 2147483648.0 + 0.5);
        units[edge] = own < 1 ? 1 : own;
    }
}

// From running sums over all edges: those in front of each column.
extern "C" __global__ void sums_before_columns(
    const void *indptr, i64 width, i64 columns, const i64 *sums, i64 *before) {
    Ints starts = {indptr, width};
    EACH(column, columns) before[column] = starts[column] > 0 ? sums[starts[column] - 1] : 0;
}

extern "C" __global__ void begin_sums_anew(
    const void *indptr, i64 width, i64 columns, i64 edges, const i64 *before, i64 *sums) {
    Ints starts = {indptr, width};
    EACH(edge, edges) sums[edge] -= before[part_of(starts, columns, edge)];
}
