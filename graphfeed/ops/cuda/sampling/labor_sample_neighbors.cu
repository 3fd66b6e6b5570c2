// A warp a column.

#include "sampling/pick_labor.cuh"

// The values and units of a column lie where its positions do.
extern "C" __global__ void fill_layer_neighbors(
    const void *indptr, i64 indptr_width, const void *indices, i64 indices_width, const void *kept_indices,
    const i64 *weights, const i64 *kept_weights, const void *types, i64 types_width, const void *kept_types,
    const i64 *shifts, const void *seeds, i64 seeds_width, const i64 *fanouts, i64 fanout, i64 replace, u64 first_key,
    u64 second_key, u64 share, i64 columns, const i64 *offsets, u64 *values, u64 *units, i64 *positions) {
    Ints starts = {indptr, indptr_width}, nodes = {seeds, seeds_width};
    Shared shared = {first_key, second_key, share};
    EACH_WARP(column, columns) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) continue;
        const i64 *cumulative = begin_at(weights, kept_weights, shifts, column, 8);
        Ints kinds = {begin_at(types, kept_types, shifts, column, types_width), types_width};
        Ints sources = {begin_at(indices, kept_indices, shifts, column, indices_width), indices_width};
        Graph graph = {starts, cumulative, kinds, fanouts, fanout};
        Segment own = open_column(graph, nodes[column]);
        while (next_segment(graph, own)) {
            i64 count = count_picks<true>(cumulative, own, replace);
            if (count > 0) {
                pick_labor(sources, cumulative, own, count, replace, shared, values + at, units + at, positions + at);
            }
            at += count;
        }
    }
}
