#include "arrays.cuh"

extern "C" __global__ void read_edges(
    const void *values, i64 width, const void *cached, const i64 *offsets, i64 columns, const i64 *positions, i64 size,
    const i64 *cache_offsets, void *out) {
    EACH(item, size) {
        Ints own = {column_values(values, cached, cache_offsets, part_of(offsets, columns, item), width), width};
        store(out, width, item, own[positions[item]]);
    }
}
