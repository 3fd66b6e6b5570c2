// The device code of all ops. Its results are bit-identical to those of ops/cpu: decisions use integers, and atomics
// are only used if the result doesn't depend on their order.
//
// Every parameter is 8 bytes wide, or a struct of such fields, one per line; `source.py` parses both. Ids are passed as
// a pointer and the size of an id in bytes, since int32 and int64 share a kernel. Grid-stride loops make a launch of
// any size process all items.

typedef long long i64;
typedef unsigned long long u64;

#define EACH(item, count) \
    for (i64 item = (i64)blockIdx.x * blockDim.x + threadIdx.x; item < (count); item += (i64)gridDim.x * blockDim.x)

// Prevents unrolling, which would need more registers, so that fewer threads could wait for memory at once.
#define ROLLED _Pragma("unroll 1")

// A number that a kernel has written, if there is a pointer to it. The CPU only knows its upper bound `most`.
__device__ inline i64 counted(const i64 *number, i64 most) { return number ? *number : most; }

const unsigned ALL_LANES = 0xFFFFFFFFu;
const i64 WARP_SIZE = 32;
const i64 ALWAYS = (i64)(1ull << 63);  // the time of nodes and edges that always exist

__device__ inline i64 lane() { return threadIdx.x & (WARP_SIZE - 1); }

// The sum of the values of this lane and all lanes before it. All lanes of the warp must call this together.
__device__ inline i64 sum_up_to_lane(i64 value) {
    for (i64 step = 1; step < WARP_SIZE; step *= 2) {
        i64 before = (i64)__shfl_sync(ALL_LANES, (u64)value, (int)(lane() < step ? lane() : lane() - step));
        if (lane() >= step) value += before;
    }
    return value;
}

// Integers of 1 (unsigned), 2, 4 or 8 bytes.
struct Ints {
    const void *data;
    i64 width;
    __device__ i64 operator[](i64 at) const {
        switch (width) {
            case 8: return ((const i64 *)data)[at];
            case 4: return ((const int *)data)[at];
            case 2: return ((const short *)data)[at];
            default: return ((const unsigned char *)data)[at];
        }
    }
};

struct OutInts {
    void *data;
    i64 width;
    __device__ void put(i64 at, i64 value) const {
        switch (width) {
            case 8: ((i64 *)data)[at] = value; break;
            case 4: ((int *)data)[at] = (int)value; break;
            case 2: ((short *)data)[at] = (short)value; break;
            default: ((unsigned char *)data)[at] = (unsigned char)value;
        }
    }
};

// The first position in low .. high - 1 whose value, in ascending order, exceeds the target; high if there is none.
template <class Values>
__device__ inline i64 first_above(const Values &values, i64 low, i64 high, i64 target) {
    while (low < high) {
        i64 middle = (low + high) >> 1;
        if (values[middle] > target) high = middle;
        else low = middle + 1;
    }
    return low;
}

// The part that contains an item, given the ascending starts of the parts and the end of the last one.
template <class Values>
__device__ inline i64 part_of(const Values &starts, i64 parts, i64 item) {
    return first_above(starts, 0, parts + 1, item) - 1;
}
