#include "arrays.cuh"

const i64 NOT_KEPT = -(1ll << 62);

extern "C" __global__ void read_edges(
    const void *values, i64 width, const void *kept, const i64 *offsets, i64 columns, const i64 *positions, i64 size,
    const i64 *shifts, void *out) {
    Ints far = {values, width}, near = {kept, width};
    EACH(item, size) {
        i64 position = positions[item], shift = shifts[part_of(offsets, columns, item)];
        store(out, width, item, shift == NOT_KEPT ? far[position] : near[position + shift]);
    }
}
