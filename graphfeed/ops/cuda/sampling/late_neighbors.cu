// Edges with a second time: one warp per column, or a block, reads those that the first time and the window leave.

#include "sampling/temporal_eligibility.cuh"

// Also counts, in `eligible_offsets`, how many edges of each column are not too early by their second time.
extern "C" __global__ void count_late_neighbors(
    const void *indptr, i64 indptr_width, const i64 *times, const i64 *earliest, const i64 *cumulative,
    const void *types, i64 types_width, const void *seeds, i64 seeds_width, const i64 *firsts, const i64 *limits,
    const i64 *fanouts, i64 fanout, i64 replace, i64 most_columns, const i64 *num_columns, i64 *offsets,
    i64 *eligible_offsets) {
    i64 columns = counted(num_columns, most_columns), *counts = offsets + 1, *eligible_counts = eligible_offsets + 1;
    EACH(place, most_columns + 1) {
        if (place == 0 || place > columns) offsets[place] = eligible_offsets[place] = 0;
    }
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    TimeRange range = {times, firsts, limits};
    Ints nodes = {seeds, seeds_width};
    auto walk = [&](i64 column) { return degree_of(graph.indptr, nodes[column]); };
    each_column_by_warp(columns, walk, [&](auto team, i64 column) {
        i64 total = 0, all = 0, before;
        Segment whole = open_column(graph, nodes[column]);
        while (next_segment(graph, whole)) {
            Segment own = eligible_part(graph, range, column, whole);
            i64 eligible = 0, late = 0;
            for (i64 edge = own.low + team.rank(); edge < own.high; edge += team.size()) {
                if (earliest[edge] < firsts[column]) continue;
                late++;
                eligible += weight_of(cumulative, own, edge) > 0;
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

// Gather those edges of each column from its offset on: their positions in the graph, the running sums of their
// weights, and their types.
extern "C" __global__ void gather_late_neighbors(
    const void *indptr, i64 indptr_width, const i64 *times, const i64 *earliest, const i64 *cumulative,
    const void *types, i64 types_width, const void *order, i64 order_width, const void *seeds, i64 seeds_width,
    const i64 *firsts, const i64 *limits, const i64 *fanouts, i64 most_columns, const i64 *num_columns, const i64 *offsets,
    i64 *found, i64 *sums, void *kinds) {
    i64 columns = counted(num_columns, most_columns);
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, 0};
    TimeRange range = {times, firsts, limits};
    RankPositions position_of = {nullptr, {order, order_width}};
    Ints nodes = {seeds, seeds_width};
    auto walk = [&](i64 column) { return degree_of(graph.indptr, nodes[column]); };
    each_column_by_warp(columns, walk, [&](auto team, i64 column) {
        i64 at = offsets[column], total = 0;
        Segment whole = open_column(graph, nodes[column]);
        while (next_segment(graph, whole)) {
            Segment own = eligible_part(graph, range, column, whole);
            Piece piece = piece_of(team, own.low, own.high);
            i64 number = 0, sum = 0, late = 0, weight = 0;
            for (i64 edge = piece.low + team.lane_of_part(); edge < piece.high; edge += WARP_SIZE) {
                if (earliest[edge] < firsts[column]) continue;
                late++;
                weight += cumulative ? weight_of(cumulative, own, edge) : 0;
            }
            late = team.total(late, number), weight = team.total(weight, sum);
            number += at, sum += total;
            for (i64 first = piece.low; first < piece.high; first += WARP_SIZE) {
                i64 edge = first + lane();
                bool is_late = edge < piece.high && earliest[edge] >= firsts[column];
                unsigned all = team.vote(is_late);
                if (cumulative) sum += team.sum_up_to(is_late ? weight_of(cumulative, own, edge) : 0);
                if (is_late) {
                    i64 place = number + marks_before(team, all);
                    found[place] = position_of(own.start, edge);
                    if (cumulative) sums[place] = sum;
                    if (fanouts) store(kinds, types_width, place, own.type);
                }
                number += __popc(all);
                if (cumulative) sum = team.last_of_part(sum);
            }
            at += late, total += weight;
        }
    });
}
