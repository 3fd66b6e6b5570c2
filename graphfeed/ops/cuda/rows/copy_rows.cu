// 1 to 32 lanes per row.

#include "arrays.cuh"

struct alignas(16) Wide {
    u64 low, high;
};

const u64 LINE_BYTES = 128;

// A full warp begins at a cache line, so that it reads full lines, which matters over the bus.
template <class Word>
__device__ inline void copy_words(
    const void *values, Ints index, i64 rows, i64 words, i64 lane_bits, void *out, const i64 *to_rows) {
    i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x, lanes = 1ll << lane_bits, lane = thread & (lanes - 1);
    for (i64 row = thread >> lane_bits; row < rows; row += ((i64)gridDim.x * blockDim.x) >> lane_bits) {
        i64 target = to_rows ? to_rows[row] : row;
        if (target < 0) continue;
        const Word *from = (const Word *)values + index[row] * words;
        Word *to = (Word *)out + target * words;
        i64 skew = lanes == WARP_SIZE ? (i64)((u64)from % LINE_BYTES / sizeof(Word)) : 0;
        for (i64 word = lane - skew; word < words; word += lanes) {
            if (word >= 0) to[word] = from[word];
        }
    }
}

// Without `to_rows`, rows are written consecutively. Otherwise targets are distinct, and negative ones are skipped. If
// `num_rows` is given, it points to the actual number of rows, at most `most_rows`.
extern "C" __global__ void copy_rows(
    const void *values, Ints from, i64 most_rows, const i64 *num_rows, i64 words, i64 word_bytes, i64 lane_bits, void *out,
    const i64 *to_rows) {
    i64 rows = counted(num_rows, most_rows);
    switch (word_bytes) {
        case 16: copy_words<Wide>(values, from, rows, words, lane_bits, out, to_rows); break;
        case 8: copy_words<u64>(values, from, rows, words, lane_bits, out, to_rows); break;
        case 4: copy_words<unsigned>(values, from, rows, words, lane_bits, out, to_rows); break;
        case 2: copy_words<unsigned short>(values, from, rows, words, lane_bits, out, to_rows); break;
        default: copy_words<unsigned char>(values, from, rows, words, lane_bits, out, to_rows);
    }
}
