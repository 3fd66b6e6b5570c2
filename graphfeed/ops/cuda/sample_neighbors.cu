// A thread a column.

#include "pick.cuh"

extern "C" __global__ void count_neighbors(
    const void *indptr, i64 indptr_width, const i64 *cumulative, const void *types, i64 types_width, const void *seeds,
    i64 seeds_width, const i64 *fanouts, i64 fanout, i64 replace, i64 columns, i64 *counts) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    Ints nodes = {seeds, seeds_width};
    EACH(column, columns) {
        i64 total = 0;
        Segment own = open_column(graph, nodes[column]);
        while (next_segment(graph, own)) total += count_picks(cumulative, own, replace);
        counts[column] = total;
    }
}

// A column's part of the table begins at twice its offset.
extern "C" __global__ void fill_neighbors(
    const void *indptr, i64 indptr_width, const i64 *cumulative, const void *types, i64 types_width, const void *seeds,
    i64 seeds_width, const i64 *fanouts, i64 fanout, i64 replace, u64 key, i64 columns, const i64 *offsets, i64 *table,
    i64 *positions) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    Ints nodes = {seeds, seeds_width};
    EACH(column, columns) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) continue;
        i64 node = nodes[column];
        u64 state = node_state(key, node);
        Segment own = open_column(graph, node);
        while (next_segment(graph, own)) {
            i64 count = count_picks(cumulative, own, replace);
            u64 segment = fanouts ? typed_state(state, own.type) : state;
            if (count > 0) pick(cumulative, own, count, replace, segment, positions + at, table + 2 * at);
            at += count;
        }
    }
}

// Sort each column's picks and count them by type, each count behind the place of its column in its type's part.
extern "C" __global__ void count_types(
    const void *types, i64 types_width, i64 *positions, const i64 *offsets, i64 columns, const i64 *column_starts,
    i64 kinds, const i64 *bounds, i64 *counts) {
    Ints kind_of = {types, types_width};
    EACH(column, columns) {
        i64 low = offsets[column], high = offsets[column + 1];
        sort(positions + low, high - low);
        i64 local = column - column_starts[part_of(column_starts, kinds, column)];
        for (i64 place = low; place < high; place++) counts[bounds[kind_of[positions[place]]] + local + 1]++;
    }
}

// `before` holds the running sum of the counts over all parts.
extern "C" __global__ void fill_types(
    const void *types, i64 types_width, const i64 *positions, const i64 *offsets, i64 columns,
    const i64 *column_starts, i64 kinds, const i64 *bounds, const i64 *before, i64 *grouped) {
    Ints kind_of = {types, types_width};
    EACH(column, columns) {
        i64 local = column - column_starts[part_of(column_starts, kinds, column)];
        i64 type = -1, at = 0;
        for (i64 place = offsets[column]; place < offsets[column + 1]; place++) {
            i64 own = kind_of[positions[place]];
            if (own != type) at = before[bounds[own] + local];
            type = own;
            grouped[at++] = positions[place];
        }
    }
}
