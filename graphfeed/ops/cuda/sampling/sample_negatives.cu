// One thread per row of the result.

#include "random.cuh"

extern "C" __global__ void sample_negatives(
    Ints pairs, i64 count, i64 ratio, i64 bound, u64 key, i64 rows, OutInts out) {
    EACH(row, rows) {
        i64 place = row - count, pair = place < 0 ? row : place / ratio;
        i64 destination = place < 0 ? pairs[2 * pair + 1] : draw_below(node_state(key, place), 0, bound);
        out.put(2 * row, pairs[2 * pair]);
        out.put(2 * row + 1, destination);
    }
}
