// A thread a column; a warp where edges have a second time, for then all those of a run are looked at.

#include "sampling/temporal_eligibility.cuh"

extern "C" __global__ void count_timed_neighbors(
    const void *indptr, i64 indptr_width, const i64 *times, const i64 *cumulative, const void *types, i64 types_width,
    const void *seeds, i64 seeds_width, const i64 *firsts, const i64 *limits, const i64 *fanouts, i64 fanout,
    i64 replace, i64 columns, i64 *counts) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    Period period = {times, firsts, limits};
    Ints nodes = {seeds, seeds_width};
    EACH(column, columns) {
        i64 total = 0;
        Segment whole = open_column(graph, nodes[column]);
        while (next_segment(graph, whole)) {
            total += count_picks(cumulative, cut(graph, period, column, whole), replace);
        }
        counts[column] = total;
    }
}

// `admitted` is written too: how many edges of each column are not too early by their second time.
extern "C" __global__ void count_late_neighbors(
    const void *indptr, i64 indptr_width, const i64 *times, const i64 *earliest, const i64 *cumulative,
    const void *types, i64 types_width, const void *seeds, i64 seeds_width, const i64 *firsts, const i64 *limits,
    const i64 *fanouts, i64 fanout, i64 replace, i64 columns, i64 *counts, i64 *admitted) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    Period period = {times, firsts, limits};
    Ints nodes = {seeds, seeds_width};
    EACH_WARP(column, columns) {
        i64 total = 0, all = 0;
        Segment whole = open_column(graph, nodes[column]);
        while (next_segment(graph, whole)) {
            Segment own = cut(graph, period, column, whole);
            i64 eligible = 0;
            for (i64 first = own.low; first < own.high; first += LANES) {
                i64 edge = first + lane();
                bool late = edge < own.high && earliest[edge] >= firsts[column];
                all += __popc(__ballot_sync(WARP, late));
                eligible += __popc(__ballot_sync(WARP, late && weight_of(cumulative, own, edge) > 0));
            }
            bool repeats = replace && own.fanout > 0;
            if (repeats && eligible > 0) total += own.fanout;
            else if (!repeats) total += own.fanout < 0 || eligible < own.fanout ? eligible : own.fanout;
        }
        if (lane() == 0) counts[column] = total, admitted[column] = all;
    }
}

// Write those edges of each column from its offset on: position in the graph, running sum of the weights, type.
extern "C" __global__ void gather_late_neighbors(
    const void *indptr, i64 indptr_width, const i64 *times, const i64 *earliest, const i64 *cumulative,
    const void *types, i64 types_width, const void *order, i64 order_width, const void *seeds, i64 seeds_width,
    const i64 *firsts, const i64 *limits, const i64 *fanouts, i64 columns, const i64 *offsets, i64 *found, i64 *sums,
    void *kinds) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, 0};
    Period period = {times, firsts, limits};
    Places places = {nullptr, {order, order_width}};
    Ints nodes = {seeds, seeds_width};
    EACH_WARP(column, columns) {
        i64 at = offsets[column], total = 0;
        Segment whole = open_column(graph, nodes[column]);
        while (next_segment(graph, whole)) {
            Segment own = cut(graph, period, column, whole);
            for (i64 first = own.low; first < own.high; first += LANES) {
                i64 edge = first + lane();
                bool late = edge < own.high && earliest[edge] >= firsts[column];
                unsigned all = __ballot_sync(WARP, late);
                i64 sum = cumulative ? total + sum_up_to_lane(late ? weight_of(cumulative, own, edge) : 0) : 0;
                if (late) {
                    i64 place = at + __popc(all & ((1u << lane()) - 1));
                    found[place] = places(own.start, edge);
                    if (cumulative) sums[place] = sum;
                    if (fanouts) store(kinds, types_width, place, own.type);
                }
                at += __popc(all);
                if (cumulative) total = (i64)__shfl_sync(WARP, (u64)sum, (int)LANES - 1);
            }
        }
    }
}

// All that is admitted: a warp a column. Where edges were gathered, columns are theirs.
extern "C" __global__ void fill_timed_columns(
    const void *indptr, i64 indptr_width, const i64 *times, const void *types, i64 types_width, const void *order,
    i64 order_width, const i64 *found, const void *seeds, i64 seeds_width, const i64 *firsts, const i64 *limits,
    const i64 *fanouts, i64 fanout, i64 columns, const i64 *offsets, i64 *positions) {
    Graph graph = {{indptr, indptr_width}, nullptr, {types, types_width}, fanouts, fanout};
    Period period = {times, firsts, limits};
    Places places = {found, {order, order_width}};
    Ints nodes = {seeds, seeds_width};
    EACH_WARP(column, columns) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) continue;
        Segment whole = open_column(graph, found ? column : nodes[column]);
        while (next_segment(graph, whole)) {
            Segment own = cut(graph, period, column, whole);
            for (i64 rank = own.low + lane(); rank < own.high; rank += LANES) {
                positions[at + rank - own.low] = places(own.start, rank);
            }
            at += own.high - own.low;
        }
    }
}

// A column's part of the table begins at twice its offset. Where edges were gathered, columns are theirs.
extern "C" __global__ void fill_timed_neighbors(
    const void *indptr, i64 indptr_width, const i64 *times, const i64 *cumulative, const void *types, i64 types_width,
    const void *order, i64 order_width, const i64 *found, const void *seeds, i64 seeds_width, const i64 *firsts,
    const i64 *limits, const i64 *fanouts, i64 fanout, i64 replace, i64 latest, u64 key, i64 columns,
    const i64 *offsets, i64 *table, i64 *positions) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    Period period = {times, firsts, limits};
    Places places = {found, {order, order_width}};
    Ints nodes = {seeds, seeds_width};
    EACH(column, columns) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) continue;
        i64 node = nodes[column];
        u64 state = timed_state(key, node, limits[column]);
        Segment whole = open_column(graph, found ? column : node);
        while (next_segment(graph, whole)) {
            Segment own = cut(graph, period, column, whole);
            i64 count = fanouts ? count_picks(cumulative, own, replace) : offsets[column + 1] - at;
            i64 *out = positions + at;
            if (latest) {
                for (i64 number = 0; number < count; number++) out[number] = own.high - count + number;
            } else if (count > 0) {
                u64 segment = fanouts ? typed_state(state, own.type) : state;
                pick(cumulative, own, count, replace, segment, out, table + 2 * at);
            }
            for (i64 number = 0; number < count; number++) out[number] = places(own.start, out[number]);
            at += count;
        }
    }
}
