// One thread per column; a warp or a block if its edges are read. Without times, all edges of a column are eligible. If
// only the GPU knows the number of columns, the remaining ones have no edges.

#include "sampling/temporal_eligibility.cuh"
#include "sampling/pick_labor.cuh"

extern "C" __global__ void count_neighbors(
    Graph graph, TimeRange range, Columns columns, i64 replace, i64 *offsets) {
    i64 number = columns.count(), *counts = offsets + 1;
    EACH(place, columns.most + 1) {
        if (place == 0 || place > number) offsets[place] = 0;
    }
    auto count = [&](auto team, i64 column) {
        i64 total = 0;
        Segment whole = open_column(graph, columns.nodes[column]);
        while (next_segment(graph, whole)) {
            total += count_picks(team, graph.cumulative, eligible_part(graph, range, column, whole), replace);
        }
        if (team.rank() == 0) counts[column] = total;
    };
    // If few edges have a positive weight, most of the column is read.
    auto walk = [&](i64 column) { return graph.cumulative ? degree_of(graph.indptr, columns.nodes[column]) : 0; };
    if (graph.cumulative) each_column_by_warp(number, walk, count);
    else each_column(number, walk, count, [] {});
}

// The part of a column in the table begins at twice its offset. `walks`: some columns may be read completely. If edges
// were gathered (`found`), they form the columns.
extern "C" __launch_bounds__(THREADS, 4) __global__ void fill_neighbors(
    Graph graph, TimeRange range, Columns columns, RankPositions position_of, i64 replace, i64 latest, i64 walks, u64 hop_key,
    const i64 *trees, const i64 *offsets, i64 *table, i64 *positions) {
    auto walk = [&](i64 column) {
        if (!walks || (!graph.fanouts && offsets[column + 1] - offsets[column] == graph.fanout)) return (i64)0;
        return degree_of(graph.indptr, position_of.found ? column : columns.nodes[column]);
    };
    // Not in registers, of which it would need an eighth.
    __shared__ Turn turns[THREADS];
    Turn &turn = turns[threadIdx.x];
    turn.count = turn.next = 0;
    auto finish = [&]() {
        if (turn.count > 0) {
            i64 *slots = table ? table + 2 * (turn.out - positions) : nullptr;
            if (graph.cumulative) pick_weighted(graph.cumulative, turn.own, turn.count, turn.state, turn.out);
            else pick_plain(turn.own, turn.count, turn.state, turn.out, slots);
            position_of.move(Thread(), turn.own.start, turn.count, turn.out);
        }
        turn.count = turn.next = 0;
    };
    auto fill = [&](auto team, i64 column) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) return;
        i64 node = columns.nodes[column];
        u64 key = key_of(hop_key, trees, column);
        // A node has different draws at different times.
        u64 state = range.limits ? timed_state(key, node, range.limits[column]) : node_state(key, node);
        Segment all = open_column(graph, position_of.found ? column : node);
        while (next_segment(graph, all)) {
            Segment own = eligible_part(graph, range, column, all);
            i64 count = graph.fanouts ? count_picks(team, graph.cumulative, own, replace) : offsets[column + 1] - at;
            i64 *out = positions + at;
            u64 segment = graph.fanouts ? typed_state(state, own.type) : state;
            at += count;
            if (latest) {
                for (i64 number = team.rank(); number < count; number += team.size()) {
                    out[number] = own.high - count + number;
                }
            } else if (count > 0 && !pick_together(team, graph.cumulative, own, count, replace, segment, out)) {
                if (team.rank() == turn.next) turn = {own, count, turn.next, segment, out};
                if (++turn.next == team.size()) finish();
                continue;
            }
            // Other threads may have written the picks.
            team.sync();
            position_of.move(team, own.start, count, out);
        }
    };
    each_column(columns.count(), walk, fill, finish);
}

// A warp or a block per column. The scratch of a column (values and units) begins at its offset.
extern "C" __global__ void fill_labor_neighbors(
    Graph graph, TimeRange range, Columns columns, RankPositions position_of, Ints indices, i64 replace, Variates variates,
    const i64 *offsets, u64 *values, u64 *units, i64 *positions) {
    auto walk = [&](i64 column) { return degree_of(graph.indptr, position_of.found ? column : columns.nodes[column]); };
    each_column_by_warp(columns.count(), walk, [&](auto team, i64 column) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) return;
        Segment whole = open_column(graph, position_of.found ? column : columns.nodes[column]);
        RankedSources sources = {indices, position_of, whole.start};
        while (next_segment(graph, whole)) {
            Segment own = eligible_part(graph, range, column, whole);
            i64 count = count_picks(team, graph.cumulative, own, replace), *out = positions + at;
            if (count == 0) continue;
            pick_labor(
                team, sources, graph.cumulative, own, count, replace, variates, values + at, units + at, out);
            position_of.move(team, own.start, count, out);
            at += count;
        }
    });
}

extern "C" __global__ void sort_columns(i64 *positions, const i64 *offsets, i64 columns) {
    auto picks = [&](i64 column) { return offsets[column + 1] - offsets[column]; };
    auto sort_one = [&](auto team, i64 column) { sort(team, positions + offsets[column], picks(column)); };
    each_column(columns, picks, sort_one, [] {});
}

// The column and edge type of a pick, and the first pick of both. Picks and types ascend within a column.
struct TypedPick {
    i64 column, type, first;
    bool is_last;
};

struct PickTypes {
    Ints types;
    const i64 *at;  // null: there is one per pick
    __device__ i64 operator[](i64 place) const { return types[at ? at[place] : place]; }
};

__device__ inline TypedPick find_pick(const PickTypes &kinds, const i64 *offsets, i64 columns, i64 place) {
    i64 column = part_of(offsets, columns, place);
    i64 type = kinds[place];
    bool is_last = place + 1 == offsets[column + 1] || kinds[place + 1] != type;
    return {column, type, first_above(kinds, offsets[column], place, type - 1), is_last};
}

// One thread per pick, of at most `most_edges`. Types are read `at` positions of the graph, or there is one per pick.
// The count of a column is written one place after it in the part of its type, for a running sum. Parts are in the
// order of `ranks`, if given.
extern "C" __global__ void count_types(
    PickTypes types, const i64 *offsets, i64 columns, const i64 *column_starts, i64 kinds, const i64 *bounds,
    const i64 *ranks, i64 most_edges, i64 *counts) {
    EACH(place, most_edges) {
        if (place >= offsets[columns]) return;
        TypedPick own = find_pick(types, offsets, columns, place);
        i64 local = own.column - column_starts[part_of(column_starts, kinds, own.column)];
        if (own.is_last) counts[bounds[ranks ? ranks[own.type] : own.type] + local + 1] = place + 1 - own.first;
    }
}

// `before` is the running sum of the counts over all parts. Also writes the column starts of each part, beginning at 0.
extern "C" __global__ void fill_types(
    PickTypes types, const i64 *offsets, i64 columns, const i64 *column_starts, i64 kinds, const i64 *bounds,
    const i64 *ranks, i64 most_edges, const i64 *before, const i64 *positions, i64 *grouped, i64 edge_types,
    OutInts indptr) {
    EACH(place, most_edges) {
        if (place >= offsets[columns]) break;
        TypedPick own = find_pick(types, offsets, columns, place);
        i64 local = own.column - column_starts[part_of(column_starts, kinds, own.column)];
        i64 part = ranks ? ranks[own.type] : own.type;
        grouped[before[bounds[part] + local] + place - own.first] = positions[place];
    }
    EACH(slot, bounds[edge_types]) {
        indptr.put(slot, before[slot] - before[bounds[part_of(bounds, edge_types, slot)]]);
    }
}
