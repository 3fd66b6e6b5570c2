// A warp a column.

#include "sampling/temporal_eligibility.cuh"
#include "sampling/pick_labor.cuh"

// The source of each edge of a column, by its rank.
struct TimedSources {
    Ints indices;
    Places places;
    i64 start;
    __device__ i64 operator[](i64 rank) const { return indices[places(start, rank)]; }
};

// Where edges were gathered, columns are theirs.
extern "C" __global__ void fill_timed_layer_neighbors(
    const void *indptr, i64 indptr_width, const i64 *times, const i64 *cumulative, const void *types, i64 types_width,
    const void *indices, i64 indices_width, const void *order, i64 order_width, const i64 *found, const void *seeds,
    i64 seeds_width, const i64 *firsts, const i64 *limits, const i64 *fanouts, i64 fanout, i64 replace, u64 first_key,
    u64 second_key, u64 share, i64 columns, const i64 *offsets, u64 *values, u64 *units, i64 *positions) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    Period period = {times, firsts, limits};
    Places places = {found, {order, order_width}};
    Ints nodes = {seeds, seeds_width};
    Shared shared = {first_key, second_key, share};
    EACH_WARP(column, columns) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) continue;
        Segment whole = open_column(graph, found ? column : nodes[column]);
        TimedSources sources = {{indices, indices_width}, places, whole.start};
        while (next_segment(graph, whole)) {
            Segment own = cut(graph, period, column, whole);
            i64 count = count_picks<true>(cumulative, own, replace), *out = positions + at;
            if (count == 0) continue;
            pick_labor(sources, cumulative, own, count, replace, shared, values + at, units + at, out);
            for (i64 number = lane(); number < count; number += LANES) out[number] = places(own.start, out[number]);
            at += count;
        }
    }
}
