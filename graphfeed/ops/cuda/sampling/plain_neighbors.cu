// Kernels for the most common hops: uniform, without weights and times, with a single small fan-out. They need fewer
// registers than those in `sample_neighbors.cu`, and compile 20 times as fast.

#include "sampling/pick.cuh"

extern "C" __global__ void count_plain_neighbors(
    Ints indptr, Columns columns, i64 fanout, i64 replace, i64 *offsets) {
    i64 count = columns.count();
    ROLLED EACH(place, columns.most + 1) {
        i64 degree = place > 0 && place <= count ? degree_of(indptr, columns.nodes[place - 1]) : 0;
        offsets[place] = degree > fanout || (replace && degree > 0) ? fanout : degree;
    }
}

extern "C" __global__ void fill_plain_neighbors(
    Ints indptr, Columns columns, i64 fanout, i64 replace, u64 key, const i64 *trees, const i64 *offsets,
    i64 *positions) {
    Graph graph = {indptr, nullptr, {nullptr, 0}, nullptr, fanout};
    i64 most = columns.count();
    ROLLED EACH(column, most) {
        i64 at = offsets[column], count = offsets[column + 1] - at;
        if (count == 0) continue;
        i64 node = columns.nodes[column];
        Segment own = open_column(graph, node);
        next_segment(graph, own);
        u64 state = node_state(key_of(key, trees, column), node);
        if (!pick_together(Thread(), nullptr, own, count, replace, state, positions + at)) {
            pick_plain(own, count, state, positions + at, nullptr);
        }
    }
}
