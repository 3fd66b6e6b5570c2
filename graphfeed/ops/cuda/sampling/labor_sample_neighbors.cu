// One warp per column, or a block.

#include "sampling/pick_labor.cuh"

// The scratch of a column, values and units, begins at its offset.
extern "C" __global__ void fill_labor_neighbors(
    const void *indptr, i64 indptr_width, const void *indices, i64 indices_width, const void *cached_indices,
    const i64 *weights, const i64 *cached_weights, const void *types, i64 types_width, const void *cached_types,
    const i64 *cache_offsets, const void *seeds, i64 seeds_width, const i64 *fanouts, i64 fanout, i64 replace,
    u64 first_key, u64 second_key, u64 switch_threshold, i64 columns, const i64 *offsets, u64 *values, u64 *units,
    i64 *positions) {
    CachedGraph edges = {
        {indptr, indptr_width}, weights, cached_weights, {types, types_width}, cached_types, cache_offsets, fanouts,
        fanout};
    Ints nodes = {seeds, seeds_width};
    Variates variates = {first_key, second_key, switch_threshold};
    each_column_by_warp(columns, [&](i64 column) { return degree_of(edges.indptr, nodes[column]); },
                        [&](auto team, i64 column) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) return;
        Ints sources = {column_values(indices, cached_indices, cache_offsets, column, indices_width), indices_width};
        Graph graph = edges.of(column);
        Segment own = open_column(graph, nodes[column]);
        while (next_segment(graph, own)) {
            i64 count = count_picks(team, graph.cumulative, own, replace), *out = positions + at;
            if (count == 0) continue;
            pick_labor(
                team, sources, graph.cumulative, own, count, replace, variates, values + at, units + at, out);
            at += count;
        }
    });
}
