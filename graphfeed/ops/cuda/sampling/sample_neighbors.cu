// One thread per column, or per pick; a warp or a block per column where its edges are read.

#include "sampling/pick.cuh"

extern "C" __global__ void count_neighbors(
    const void *indptr, i64 indptr_width, const i64 *weights, const i64 *cached_weights, const void *types,
    i64 types_width, const void *cached_types, const i64 *cache_offsets, const void *seeds, i64 seeds_width,
    const i64 *fanouts, i64 fanout, i64 replace, i64 columns, i64 *counts) {
    CachedGraph edges = {
        {indptr, indptr_width}, weights, cached_weights, {types, types_width}, cached_types, cache_offsets, fanouts,
        fanout};
    Ints nodes = {seeds, seeds_width};
    EACH(column, columns) {
        Graph graph = edges.of(column);
        i64 total = 0;
        Segment own = open_column(graph, nodes[column]);
        while (next_segment(graph, own)) total += count_picks(Thread(), graph.cumulative, own, replace);
        counts[column] = total;
    }
}

extern "C" __global__ void count_weighted_neighbors(
    const void *indptr, i64 indptr_width, const i64 *weights, const i64 *cached_weights, const void *types,
    i64 types_width, const void *cached_types, const i64 *cache_offsets, const void *seeds, i64 seeds_width,
    const i64 *fanouts, i64 fanout, i64 replace, i64 columns, i64 *counts) {
    CachedGraph edges = {
        {indptr, indptr_width}, weights, cached_weights, {types, types_width}, cached_types, cache_offsets, fanouts,
        fanout};
    Ints nodes = {seeds, seeds_width};
    // If few edges have a weight, most of the column is read.
    each_column_by_warp(columns, [&](i64 column) { return degree_of(edges.indptr, nodes[column]); },
                        [&](auto team, i64 column) {
        Graph graph = edges.of(column);
        i64 total = 0;
        Segment own = open_column(graph, nodes[column]);
        while (next_segment(graph, own)) total += count_picks(team, graph.cumulative, own, replace);
        if (team.rank() == 0) counts[column] = total;
    });
}

// A column's part of the table begins at twice its offset. `walks`: some columns may be taken whole.
extern "C" __global__ void fill_neighbors(
    const void *indptr, i64 indptr_width, const i64 *weights, const i64 *cached_weights, const void *types,
    i64 types_width, const void *cached_types, const i64 *cache_offsets, const void *seeds, i64 seeds_width,
    const i64 *fanouts, i64 fanout, i64 replace, i64 walks, u64 key, i64 columns, const i64 *offsets, i64 *table,
    i64 *positions) {
    CachedGraph edges = {
        {indptr, indptr_width}, weights, cached_weights, {types, types_width}, cached_types, cache_offsets, fanouts,
        fanout};
    Ints nodes = {seeds, seeds_width};
    auto walk = [&](i64 column) {
        if (!walks || (!fanouts && offsets[column + 1] - offsets[column] == fanout)) return (i64)0;
        return degree_of(edges.indptr, nodes[column]);
    };
    each_column(columns, walk, [&](auto team, i64 column) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) return;
        Graph graph = edges.of(column);
        i64 node = nodes[column];
        u64 state = node_state(key, node);
        Segment own = open_column(graph, node);
        while (next_segment(graph, own)) {
            i64 count = fanouts ? count_picks(team, graph.cumulative, own, replace) : offsets[column + 1] - at;
            u64 segment = fanouts ? typed_state(state, own.type) : state;
            i64 *slots = table ? table + 2 * at : nullptr;
            if (count > 0) pick(team, graph.cumulative, own, count, replace, segment, positions + at, slots);
            at += count;
        }
    });
}

// All edges of the columns: one thread per edge, because one per column would take long on a high-degree column.
extern "C" __global__ void fill_whole_columns(
    const void *indptr, i64 indptr_width, const void *seeds, i64 seeds_width, i64 columns, const i64 *offsets,
    i64 edges, i64 *positions) {
    Ints starts = {indptr, indptr_width}, nodes = {seeds, seeds_width};
    EACH(edge, edges) {
        i64 column = part_of(offsets, columns, edge);
        positions[edge] = starts[nodes[column]] + edge - offsets[column];
    }
}

// All edges of the columns that have a weight.
extern "C" __global__ void fill_eligible_neighbors(
    const void *indptr, i64 indptr_width, const i64 *weights, const i64 *cached_weights, const i64 *cache_offsets,
    const void *seeds, i64 seeds_width, i64 columns, const i64 *offsets, i64 *positions) {
    Ints starts = {indptr, indptr_width}, nodes = {seeds, seeds_width};
    each_column_by_warp(columns, [&](i64 column) { return degree_of(starts, nodes[column]); },
                        [&](auto team, i64 column) {
        const i64 *cumulative = column_values(weights, cached_weights, cache_offsets, column, 8);
        Graph graph = {starts, cumulative, {nullptr, 1}, nullptr, -1};
        Segment own = open_column(graph, nodes[column]);
        if (next_segment(graph, own)) take_eligible(team, cumulative, own, positions + offsets[column]);
    });
}

extern "C" __global__ void sort_columns(i64 *positions, const i64 *offsets, i64 columns) {
    each_column(columns, [&](i64 column) { return offsets[column + 1] - offsets[column]; },
                [&](auto team, i64 column) {
        sort(team, positions + offsets[column], offsets[column + 1] - offsets[column]);
    });
}

// A pick's column, its edge type, and the first pick of both; picks ascend inside a column, and so do types.
struct TypedPick {
    i64 column, type, first;
    bool is_last;
};

struct PickTypes {
    Ints types;
    const i64 *positions;
    __device__ i64 operator[](i64 place) const { return types[positions[place]]; }
};

__device__ inline TypedPick find_pick(
    Ints types, const i64 *positions, const i64 *offsets, i64 columns, i64 place) {
    i64 column = part_of(offsets, columns, place);
    PickTypes kinds = {types, positions};
    i64 type = kinds[place];
    bool is_last = place + 1 == offsets[column + 1] || kinds[place + 1] != type;
    return {column, type, first_above(kinds, offsets[column], place, type - 1), is_last};
}

// One thread per pick. A count is written after the place of its column in its type's part, for a running sum.
extern "C" __global__ void count_types(
    const void *types, i64 types_width, const i64 *positions, const i64 *offsets, i64 columns,
    const i64 *column_starts, i64 kinds, const i64 *bounds, i64 edges, i64 *counts) {
    EACH(place, edges) {
        TypedPick own = find_pick({types, types_width}, positions, offsets, columns, place);
        i64 local = own.column - column_starts[part_of(column_starts, kinds, own.column)];
        if (own.is_last) counts[bounds[own.type] + local + 1] = place + 1 - own.first;
    }
}

// `before` holds the running sum of the counts over all parts.
extern "C" __global__ void fill_types(
    const void *types, i64 types_width, const i64 *positions, const i64 *offsets, i64 columns,
    const i64 *column_starts, i64 kinds, const i64 *bounds, i64 edges, const i64 *before, i64 *grouped) {
    EACH(place, edges) {
        TypedPick own = find_pick({types, types_width}, positions, offsets, columns, place);
        i64 local = own.column - column_starts[part_of(column_starts, kinds, own.column)];
        grouped[before[bounds[own.type] + local] + place - own.first] = positions[place];
    }
}
