// One thread per column; one warp if edges have a second time, because then all edges of a run are read.

#include "sampling/temporal_eligibility.cuh"

extern "C" __global__ void count_temporal_neighbors(
    const void *indptr, i64 indptr_width, const i64 *times, const i64 *cumulative, const void *types, i64 types_width,
    const void *seeds, i64 seeds_width, const i64 *firsts, const i64 *limits, const i64 *fanouts, i64 fanout,
    i64 replace, i64 columns, i64 *counts) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    TimeRange range = {times, firsts, limits};
    Ints nodes = {seeds, seeds_width};
    EACH(column, columns) {
        i64 total = 0;
        Segment whole = open_column(graph, nodes[column]);
        while (next_segment(graph, whole)) {
            total += count_picks(cumulative, eligible_part(graph, range, column, whole), replace);
        }
        counts[column] = total;
    }
}

// Also writes `eligible_counts`: how many edges of each column are not too early by their second time.
extern "C" __global__ void count_late_neighbors(
    const void *indptr, i64 indptr_width, const i64 *times, const i64 *earliest, const i64 *cumulative,
    const void *types, i64 types_width, const void *seeds, i64 seeds_width, const i64 *firsts, const i64 *limits,
    const i64 *fanouts, i64 fanout, i64 replace, i64 columns, i64 *counts, i64 *eligible_counts) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    TimeRange range = {times, firsts, limits};
    Ints nodes = {seeds, seeds_width};
    EACH_WARP(column, columns) {
        i64 total = 0, all = 0;
        Segment whole = open_column(graph, nodes[column]);
        while (next_segment(graph, whole)) {
            Segment own = eligible_part(graph, range, column, whole);
            i64 eligible = 0;
            for (i64 first = own.low; first < own.high; first += WARP_SIZE) {
                i64 edge = first + lane();
                bool late = edge < own.high && earliest[edge] >= firsts[column];
                all += __popc(__ballot_sync(ALL_LANES, late));
                eligible += __popc(__ballot_sync(ALL_LANES, late && weight_of(cumulative, own, edge) > 0));
            }
            bool repeats = replace && own.fanout > 0;
            if (repeats && eligible > 0) total += own.fanout;
            else if (!repeats) total += own.fanout < 0 || eligible < own.fanout ? eligible : own.fanout;
        }
        if (lane() == 0) counts[column] = total, eligible_counts[column] = all;
    }
}

// Gather those edges of each column from its offset on: their positions in the graph, the running sums of their
// weights, and their types.
extern "C" __global__ void gather_late_neighbors(
    const void *indptr, i64 indptr_width, const i64 *times, const i64 *earliest, const i64 *cumulative,
    const void *types, i64 types_width, const void *order, i64 order_width, const void *seeds, i64 seeds_width,
    const i64 *firsts, const i64 *limits, const i64 *fanouts, i64 columns, const i64 *offsets, i64 *found, i64 *sums,
    void *kinds) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, 0};
    TimeRange range = {times, firsts, limits};
    RankPositions position_of = {nullptr, {order, order_width}};
    Ints nodes = {seeds, seeds_width};
    EACH_WARP(column, columns) {
        i64 at = offsets[column], total = 0;
        Segment whole = open_column(graph, nodes[column]);
        while (next_segment(graph, whole)) {
            Segment own = eligible_part(graph, range, column, whole);
            for (i64 first = own.low; first < own.high; first += WARP_SIZE) {
                i64 edge = first + lane();
                bool late = edge < own.high && earliest[edge] >= firsts[column];
                unsigned all = __ballot_sync(ALL_LANES, late);
                i64 sum = cumulative ? total + sum_up_to_lane(late ? weight_of(cumulative, own, edge) : 0) : 0;
                if (late) {
                    i64 place = at + __popc(all & ((1u << lane()) - 1));
                    found[place] = position_of(own.start, edge);
                    if (cumulative) sums[place] = sum;
                    if (fanouts) store(kinds, types_width, place, own.type);
                }
                at += __popc(all);
                if (cumulative) total = (i64)__shfl_sync(ALL_LANES, (u64)sum, (int)WARP_SIZE - 1);
            }
        }
    }
}

// All eligible edges: one warp per column. If edges were gathered, they are the columns.
extern "C" __global__ void fill_eligible_columns(
    const void *indptr, i64 indptr_width, const i64 *times, const void *types, i64 types_width, const void *order,
    i64 order_width, const i64 *found, const void *seeds, i64 seeds_width, const i64 *firsts, const i64 *limits,
    const i64 *fanouts, i64 fanout, i64 columns, const i64 *offsets, i64 *positions) {
    Graph graph = {{indptr, indptr_width}, nullptr, {types, types_width}, fanouts, fanout};
    TimeRange range = {times, firsts, limits};
    RankPositions position_of = {found, {order, order_width}};
    Ints nodes = {seeds, seeds_width};
    EACH_WARP(column, columns) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) continue;
        Segment whole = open_column(graph, found ? column : nodes[column]);
        while (next_segment(graph, whole)) {
            Segment own = eligible_part(graph, range, column, whole);
            for (i64 rank = own.low + lane(); rank < own.high; rank += WARP_SIZE) {
                positions[at + rank - own.low] = position_of(own.start, rank);
            }
            at += own.high - own.low;
        }
    }
}

// A column's part of the table begins at twice its offset. If edges were gathered, they are the columns.
extern "C" __global__ void fill_temporal_neighbors(
    const void *indptr, i64 indptr_width, const i64 *times, const i64 *cumulative, const void *types, i64 types_width,
    const void *order, i64 order_width, const i64 *found, const void *seeds, i64 seeds_width, const i64 *firsts,
    const i64 *limits, const i64 *fanouts, i64 fanout, i64 replace, i64 latest, u64 key, i64 columns,
    const i64 *offsets, i64 *table, i64 *positions) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    TimeRange range = {times, firsts, limits};
    RankPositions position_of = {found, {order, order_width}};
    Ints nodes = {seeds, seeds_width};
    EACH(column, columns) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) continue;
        i64 node = nodes[column];
        u64 state = timed_state(key, node, limits[column]);
        Segment whole = open_column(graph, found ? column : node);
        while (next_segment(graph, whole)) {
            Segment own = eligible_part(graph, range, column, whole);
            i64 count = fanouts ? count_picks(cumulative, own, replace) : offsets[column + 1] - at;
            i64 *out = positions + at;
            if (latest) {
                for (i64 number = 0; number < count; number++) out[number] = own.high - count + number;
            } else if (count > 0) {
                u64 segment = fanouts ? typed_state(state, own.type) : state;
                pick(cumulative, own, count, replace, segment, out, table ? table + 2 * at : nullptr);
            }
            for (i64 number = 0; number < count; number++) out[number] = position_of(own.start, out[number]);
            at += count;
        }
    }
}
