// One warp per column, or a block.

#include "sampling/temporal_eligibility.cuh"
#include "sampling/pick_labor.cuh"

// The source of each edge of a column, by rank.
struct RankedSources {
    Ints indices;
    RankPositions position_of;
    i64 start;
    __device__ i64 operator[](i64 rank) const { return indices[position_of(start, rank)]; }
};

// If edges were gathered, they are the columns.
extern "C" __global__ void fill_temporal_labor_neighbors(
    const void *indptr, i64 indptr_width, const i64 *times, const i64 *cumulative, const void *types, i64 types_width,
    const void *indices, i64 indices_width, const void *order, i64 order_width, const i64 *found, const void *seeds,
    i64 seeds_width, const i64 *firsts, const i64 *limits, const i64 *fanouts, i64 fanout, i64 replace, u64 first_key,
    u64 second_key, u64 switch_threshold, i64 columns, const i64 *offsets, u64 *values, u64 *units, i64 *positions) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    TimeRange range = {times, firsts, limits};
    RankPositions position_of = {found, {order, order_width}};
    Ints nodes = {seeds, seeds_width};
    Variates variates = {first_key, second_key, switch_threshold};
    auto walk = [&](i64 column) { return degree_of(graph.indptr, found ? column : nodes[column]); };
    each_column_by_warp(columns, walk, [&](auto team, i64 column) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) return;
        Segment whole = open_column(graph, found ? column : nodes[column]);
        RankedSources sources = {{indices, indices_width}, position_of, whole.start};
        while (next_segment(graph, whole)) {
            Segment own = eligible_part(graph, range, column, whole);
            i64 count = count_picks(team, cumulative, own, replace), *out = positions + at;
            if (count == 0) continue;
            pick_labor(team, sources, cumulative, own, count, replace, variates, values + at, units + at, out);
            for (i64 number = team.rank(); number < count; number += team.size()) {
                out[number] = position_of(own.start, out[number]);
            }
            at += count;
        }
    });
}
