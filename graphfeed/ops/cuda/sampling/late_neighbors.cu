// Edges with second times: a warp or a block per column reads the edges that the first time and the window admit.

#include "sampling/temporal_eligibility.cuh"

// The edges of a segment to check by second time. Edges that always exist come first, and are in every window.
__device__ inline Segment late_part(const Graph &graph, const TimeRange &range, i64 column, const Segment &whole) {
    Segment own = eligible_part(graph, range, column, whole);
    if (range.times && whole.low < whole.high && range.times[whole.low] == ALWAYS) own.low = whole.low;
    return own;
}

// Also counts the edges of each column whose second time is eligible, in `eligible_offsets`.
extern "C" __global__ void count_late_neighbors(
    Graph graph, TimeRange range, Columns columns, const i64 *earliest, i64 replace, i64 *offsets, i64 *eligible_offsets) {
    i64 number = columns.count(), *counts = offsets + 1, *eligible_counts = eligible_offsets + 1;
    EACH(place, columns.most + 1) {
        if (place == 0 || place > number) offsets[place] = eligible_offsets[place] = 0;
    }
    auto walk = [&](i64 column) { return degree_of(graph.indptr, columns.nodes[column]); };
    each_column_by_warp(number, walk, [&](auto team, i64 column) {
        i64 total = 0, all = 0, before;
        Segment whole = open_column(graph, columns.nodes[column]);
        while (next_segment(graph, whole)) {
            Segment own = late_part(graph, range, column, whole);
            i64 eligible = 0, late = 0, first = range.first(column);
            for (i64 edge = own.low + team.rank(); edge < own.high; edge += team.size()) {
                if (earliest[edge] < first) continue;
                late++;
                eligible += weight_of(graph.cumulative, own, edge) > 0;
            }
            all += team.total(late, before);
            eligible = team.total(eligible, before);
            bool repeats = replace && own.fanout > 0;
            if (repeats && eligible > 0) total += own.fanout;
            else if (!repeats) total += own.fanout < 0 || eligible < own.fanout ? eligible : own.fanout;
        }
        if (team.rank() == 0) counts[column] = total, eligible_counts[column] = all;
    });
}

// Gather these edges of each column, beginning at its offset: their positions in the graph, the running sums of their
// weights, and their types.
extern "C" __global__ void gather_late_neighbors(
    Graph graph, TimeRange range, Columns columns, const i64 *earliest, Ints order, const i64 *offsets, i64 *found,
    i64 *sums, OutInts kinds) {
    RankPositions position_of = {nullptr, order};
    auto walk = [&](i64 column) { return degree_of(graph.indptr, columns.nodes[column]); };
    each_column_by_warp(columns.count(), walk, [&](auto team, i64 column) {
        i64 at = offsets[column], total = 0, first = range.first(column);
        Segment whole = open_column(graph, columns.nodes[column]);
        while (next_segment(graph, whole)) {
            Segment own = late_part(graph, range, column, whole);
            Piece piece = piece_of(team, own.low, own.high);
            i64 number = 0, sum = 0, late = 0, weight = 0;
            for (i64 edge = piece.low + team.lane_of_part(); edge < piece.high; edge += WARP_SIZE) {
                if (earliest[edge] < first) continue;
                late++;
                weight += graph.cumulative ? weight_of(graph.cumulative, own, edge) : 0;
            }
            late = team.total(late, number), weight = team.total(weight, sum);
            number += at, sum += total;
            for (i64 low = piece.low; low < piece.high; low += WARP_SIZE) {
                i64 edge = low + lane();
                bool is_late = edge < piece.high && earliest[edge] >= first;
                unsigned all = team.vote(is_late);
                if (graph.cumulative) sum += team.sum_up_to(is_late ? weight_of(graph.cumulative, own, edge) : 0);
                if (is_late) {
                    i64 place = number + marks_before(team, all);
                    found[place] = position_of(own.start, edge);
                    if (graph.cumulative) sums[place] = sum;
                    if (graph.fanouts) kinds.put(place, own.type);
                }
                number += __popc(all);
                if (graph.cumulative) sum = team.last_of_part(sum);
            }
            at += late, total += weight;
        }
    });
}
