#include "arrays.cuh"

// Also writes where the values of the other picks go; -1 for those of cached columns.
extern "C" __global__ void read_cached_edges(
    const void *cached, i64 width, const i64 *offsets, i64 columns, const i64 *positions, i64 size,
    const i64 *cache_offsets, void *out, i64 *others) {
    Ints copies = {cached, width};
    EACH(item, size) {
        i64 offset = cache_offsets[part_of(offsets, columns, item)];
        others[item] = offset == NOT_CACHED ? item : -1;
        if (offset != NOT_CACHED) store(out, width, item, copies[positions[item] + offset]);
    }
}
