#include "sampling/teams.cuh"

// Copies `source` or, if it is null, sets all values to `value`.
extern "C" __global__ void set_values(const i64 *source, i64 value, i64 *values, i64 count) {
    EACH(at, count) values[at] = source ? source[at] : value;
}

// Running sums in place, in chunks, each by one block: the first kernel adds up each chunk, the second one begins with
// the sum of the chunks before. Sums of integers don't depend on the order in which blocks run.
extern "C" __global__ void sum_chunks(const i64 *values, i64 count, i64 chunk, i64 *sums) {
    for (i64 own = blockIdx.x; own * chunk < count; own += gridDim.x) {
        i64 end = own * chunk + chunk < count ? own * chunk + chunk : count, total = 0, before;
        ROLLED for (i64 at = own * chunk + threadIdx.x; at < end; at += blockDim.x) total += values[at];
        total = Block().total(total, before);
        if (threadIdx.x == 0) sums[own] = total;
    }
}

// `sums` may be null if there is a single chunk.
extern "C" __global__ void add_up_chunks(i64 *values, i64 count, i64 chunk, const i64 *sums) {
    for (i64 own = blockIdx.x; own * chunk < count; own += gridDim.x) {
        i64 end = own * chunk + chunk < count ? own * chunk + chunk : count, sum = 0, before;
        ROLLED for (i64 other = threadIdx.x; other < own; other += blockDim.x) sum += sums[other];
        sum = Block().total(sum, before);
        ROLLED for (i64 first = own * chunk; first < end; first += blockDim.x) {
            i64 at = first + threadIdx.x, value = at < end ? values[at] : 0;
            i64 all = Block().total(value, before), up_to = sum_up_to_lane(value);
            if (at < end) values[at] = sum + before + up_to;
            sum += all;
        }
    }
}
