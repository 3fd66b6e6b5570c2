#include "arrays.cuh"

extern "C" __global__ void count_columns(const void *destinations, i64 width, i64 edges, u64 *counts) {
    Ints ends = {destinations, width};
    EACH(edge, edges) atomicAdd(&counts[ends[edge]], 1ull);
}

extern "C" __global__ void find_falling(const void *indptr, i64 width, i64 columns, i64 *found) {
    Ints starts = {indptr, width};
    EACH(column, columns) {
        if (starts[column + 1] < starts[column]) atomicMin(found, column);
    }
}

extern "C" __global__ void find_unsorted(
    const void *indptr, i64 width, const void *types, i64 types_width, i64 columns, i64 edges, i64 *found) {
    Ints starts = {indptr, width}, kind_of = {types, types_width};
    EACH(edge, edges) {
        if (edge == 0 || kind_of[edge] >= kind_of[edge - 1]) continue;
        i64 column = part_of(starts, columns, edge);
        if (starts[column] < edge) atomicMin(found, column);
    }
}

// `first` and `after` hold the bounds of the source and of the destination for each edge type.
extern "C" __global__ void find_misjoined(
    const void *indptr, i64 width, const void *indices, i64 indices_width, const void *types, i64 types_width,
    const i64 *first, const i64 *after, i64 columns, i64 edges, i64 *found) {
    Ints starts = {indptr, width}, sources = {indices, indices_width}, kind_of = {types, types_width};
    EACH(edge, edges) {
        i64 kind = 2 * kind_of[edge], source = sources[edge], column = part_of(starts, columns, edge);
        bool joins = first[kind] <= source && source < after[kind];
        if (!joins || column < first[kind + 1] || column >= after[kind + 1]) atomicMin(found, edge);
    }
}
