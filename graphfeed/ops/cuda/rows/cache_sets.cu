// One warp per key, or per set of keys; one lane per place of the set.

#include "random.cuh"

__device__ inline i64 set_of(i64 key, i64 sets) { return (i64)__umul64hi(mix((u64)key), (u64)sets); }

// Warps that write to the same place write the same value.
extern "C" __global__ void find_in_sets(
    const i64 *keys, i64 *uses, i64 sets, i64 ways, const i64 *wanted, i64 count, i64 request, i64 *slots) {
    i64 lane = threadIdx.x & (WARP_SIZE - 1);
    i64 step = (i64)gridDim.x * blockDim.x / WARP_SIZE;
    for (i64 item = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / WARP_SIZE; item < count; item += step) {
        i64 first = set_of(wanted[item], sets) * ways;
        bool here = lane < ways && keys[first + lane] == wanted[item];
        unsigned found = __ballot_sync(ALL_LANES, here);
        if (here) uses[first + lane] = request;
        if (lane == 0) slots[item] = found ? first + __ffs((int)found) - 1 : -1;
    }
}

extern "C" __global__ void number_sets(i64 sets, const i64 *wanted, i64 count, i64 *numbers) {
    EACH(item, count) numbers[item] = set_of(wanted[item], sets);
}

// The first lane with the least recently used place, if that was before the request; otherwise -1.
__device__ inline int find_oldest(i64 use, i64 request, i64 lane) {
    i64 least = use;
    for (i64 apart = WARP_SIZE / 2; apart > 0; apart /= 2) {
        i64 other = (i64)__shfl_sync(ALL_LANES, (u64)least, (int)(lane ^ apart));
        if (other < least) least = other;
    }
    unsigned oldest = __ballot_sync(ALL_LANES, use == least);
    return least < request ? __ffs((int)oldest) - 1 : -1;
}

// Keys are sorted by set; the warp of the first key of a set processes all of its keys.
extern "C" __global__ void replace_in_sets(
    i64 *keys, i64 *uses, i64 ways, const i64 *numbers, const i64 *order, const i64 *wanted, i64 count, i64 request,
    i64 *slots) {
    i64 lane = threadIdx.x & (WARP_SIZE - 1);
    i64 step = (i64)gridDim.x * blockDim.x / WARP_SIZE;
    for (i64 item = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / WARP_SIZE; item < count; item += step) {
        i64 set = numbers[item], first = set * ways;
        if (item > 0 && numbers[item - 1] == set) continue;
        // A lane without a place never has a key, and is never the oldest.
        i64 held = lane < ways ? keys[first + lane] : -1, use = lane < ways ? uses[first + lane] : request;
        for (i64 next = item; next < count && numbers[next] == set; next++) {
            i64 key = wanted[order[next]];
            unsigned found = __ballot_sync(ALL_LANES, held == key);
            int oldest = find_oldest(use, request, lane), way = found ? __ffs((int)found) - 1 : oldest;
            if (lane == way) held = key, use = use > request ? use : request;
            if (lane == 0) slots[order[next]] = way < 0 ? -1 : first + way;
        }
        if (lane < ways) keys[first + lane] = held, uses[first + lane] = use;
    }
}
