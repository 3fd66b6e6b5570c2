// One thread per column.

#include "arrays.cuh"

extern "C" __global__ void cumulate_weights(
    const void *indptr, i64 width, const void *weights, i64 weight_bytes, i64 columns, i64 *out) {
    Ints starts = {indptr, width};
    EACH(column, columns) {
        i64 low = starts[column], high = starts[column + 1], total = 0;
        double largest = 0;
        for (int writing = 0; writing < 2; writing++) {
            for (i64 edge = low; edge < high; edge++) {
                double weight = weight_bytes == 8 ? ((const double *)weights)[edge]
                                                  : (double)((const unsigned char *)weights)[edge];
                if (!writing) {
                    largest = weight > largest ? weight : largest;
                    continue;
                }
                // Adding a half and truncating rounds to the nearest unit, as on the CPU.
                i64 units = weight > 0 ? (i64)(weight / largest * 2147483648.0 + 0.5) : 0;
                total += weight > 0 && units < 1 ? 1 : units;
                out[edge] = total;
            }
        }
    }
}
