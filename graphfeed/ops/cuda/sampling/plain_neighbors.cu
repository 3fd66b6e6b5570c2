// The most common picks: random ones of a graph without weights, with one small fan-out for all edges, and no times.
// These have fewer registers than those of `sample_neighbors.cu`, and compile in a twentieth of the time.

#include "sampling/pick.cuh"

extern "C" __global__ void count_plain_neighbors(
    const void *indptr, i64 indptr_width, const void *seeds, i64 seeds_width, i64 fanout, i64 replace,
    i64 most_columns, const i64 *num_columns, i64 *offsets) {
    i64 columns = counted(num_columns, most_columns);
    Ints starts = {indptr, indptr_width}, nodes = {seeds, seeds_width};
    ROLLED EACH(place, most_columns + 1) {
        i64 degree = place > 0 && place <= columns ? degree_of(starts, nodes[place - 1]) : 0;
        offsets[place] = degree > fanout || (replace && degree > 0) ? fanout : degree;
    }
}

extern "C" __global__ void fill_plain_neighbors(
    const void *indptr, i64 indptr_width, const void *seeds, i64 seeds_width, i64 fanout, i64 replace,
    i64 most_columns, const i64 *num_columns, u64 key, const i64 *offsets, i64 *positions) {
    i64 columns = counted(num_columns, most_columns);
    Graph graph = {{indptr, indptr_width}, nullptr, {nullptr, 0}, nullptr, fanout};
    Ints nodes = {seeds, seeds_width};
    ROLLED EACH(column, columns) {
        i64 at = offsets[column], count = offsets[column + 1] - at;
        if (count == 0) continue;
        i64 node = nodes[column];
        Segment own = open_column(graph, node);
        next_segment(graph, own);
        u64 state = node_state(key, node);
        if (!pick_together(Thread(), nullptr, own, count, replace, state, positions + at)) {
            pick_plain(own, count, state, positions + at, nullptr);
        }
    }
}
