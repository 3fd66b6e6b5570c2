// One thread per row of the result.

#include "random.cuh"

extern "C" __global__ void sample_negatives(
    const void *pairs, i64 width, i64 count, i64 ratio, i64 bound, u64 key, i64 rows, void *out) {
    Ints given = {pairs, width};
    EACH(row, rows) {
        i64 place = row - count, pair = place < 0 ? row : place / ratio;
        i64 destination = place < 0 ? given[2 * pair + 1] : draw_below(node_state(key, place), 0, bound);
        store(out, width, 2 * row, given[2 * pair]);
        store(out, width, 2 * row + 1, destination);
    }
}
