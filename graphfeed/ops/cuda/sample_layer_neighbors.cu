// A warp a column.

#include "pick_jointly.cuh"

// The values and units of a column lie where its positions do.
extern "C" __global__ void fill_layer_neighbors(
    const void *indptr, i64 indptr_width, const void *indices, i64 indices_width, const i64 *cumulative,
    const void *types, i64 types_width, const void *seeds, i64 seeds_width, const i64 *fanouts, i64 fanout,
    i64 replace, u64 first_key, u64 second_key, u64 share, i64 columns, const i64 *offsets, u64 *values, u64 *units,
    i64 *positions) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    Ints nodes = {seeds, seeds_width}, sources = {indices, indices_width};
    Shared shared = {first_key, second_key, share};
    EACH_WARP(column, columns) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) continue;
        Segment own = open_column(graph, nodes[column]);
        while (next_segment(graph, own)) {
            i64 count = count_picks<true>(cumulative, own, replace);
            if (count > 0) {
                pick_jointly(sources, cumulative, own, count, replace, shared, values + at, units + at, positions + at);
            }
            at += count;
        }
    }
}
