#include "arrays.cuh"

// Copy the seeds, replacing ids out of range by -1 and setting `is_wrong`. Seeds are ids within their type, ordered by
// type, and become ids of the graph.
extern "C" __global__ void clean_seeds(
    Ints seeds, i64 num_seeds, const i64 *seed_starts, const i64 *first_ids, i64 kinds, OutInts clean, i64 *is_wrong) {
    EACH(item, num_seeds) {
        i64 kind = part_of(seed_starts, kinds, item), first = first_ids[kind], node = seeds[item];
        i64 size = first_ids[kind + 1] - first;
        bool is_node = node >= 0 && node < size;
        if (!is_node) atomicMax(is_wrong, 1ll);
        clean.put(item, is_node ? first + node : -1);
    }
}

// Temporal hops: append a row for every edge, with the window of its column, and its time, or the time of the edge if
// there are `edge_times` and it is not ALWAYS. Sources and edge times are read `at` positions of the graph, or have one
// value per edge. Unused rows have time 0.
extern "C" __global__ void append_rows(
    Ints seeds, i64 most_seeds, const i64 *num_seeds, Ints sources, const i64 *at, const i64 *offsets, i64 most_edges,
    const i64 *times, const i64 *windows, const i64 *edge_times, const i64 *times_at, OutInts rows, OutInts local,
    i64 *row_times, i64 *row_windows, i64 *edge_ends, i64 *row_ends, i64 *next_ends) {
    i64 columns = counted(num_seeds, most_seeds), edges = offsets[most_seeds];
    EACH(row, most_seeds + most_edges) {
        if (row == 0) edge_ends[1] = edges, row_ends[1] = columns + edges, next_ends[1] = columns + edges + 1;
        i64 edge = row - columns, column = 0, time = 0;
        bool is_row = edge < edges;
        if (is_row) {
            column = edge < 0 ? row : part_of(offsets, most_seeds, edge);
            time = edge < 0 || !edge_times ? ALWAYS : edge_times[times_at ? times_at[edge] : edge];
            if (time == ALWAYS) time = times[column];
            rows.put(row, edge < 0 ? seeds[row] : sources[at ? at[edge] : edge]);
            if (edge >= 0) local.put(edge, row);
        }
        row_times[row] = time;
        if (windows) row_windows[row] = is_row ? windows[column] : 0;
    }
}
