// Counts of equal values in rows that ascend (ops/cpu/sampling/count_visits.py).

#include "arrays.cuh"

// One thread per visit: the last of a run writes its length, and all others 0; -1 is not counted.
extern "C" __global__ void count_runs(const i64 *visits, i64 rows, i64 size, i64 *numbers) {
    EACH(place, rows * size) {
        const i64 *row = visits + place / size * size;
        i64 at = place % size, node = row[at];
        bool ends = node >= 0 && (at + 1 == size || row[at + 1] != node);
        numbers[place] = ends ? at + 1 - first_above(row, 0, at, node - 1) : 0;
    }
}

// One thread per result: the first nodes of each row in an order.
extern "C" __global__ void take_best(
    const i64 *visits, const i64 *order, const i64 *numbers, i64 rows, i64 size, i64 top, const i64 *starts,
    i64 *nodes, i64 *counts) {
    EACH(result, rows * top) {
        i64 row = result / top, number = result % top;
        if (number >= starts[row + 1] - starts[row]) continue;
        nodes[starts[row] + number] = visits[row * size + order[row * size + number]];
        counts[starts[row] + number] = numbers[row * size + number];
    }
}
