#include "arrays.cuh"

extern "C" __global__ void read_edges(
    const void *values, i64 width, const void *kept, const i64 *offsets, i64 columns, const i64 *positions, i64 size,
    const i64 *shifts, void *out) {
    EACH(item, size) {
        Ints own = {begin_at(values, kept, shifts, part_of(offsets, columns, item), width), width};
        store(out, width, item, own[positions[item]]);
    }
}
