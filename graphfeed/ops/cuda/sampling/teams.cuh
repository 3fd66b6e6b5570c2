// Teams that process a column: a thread, a warp or a block, depending on the number of edges to read, so that no column
// takes many times as long as the others.
//
// A team consists of parts, which are warps, or a single thread; the lanes of a part can vote. All threads of a team
// must call its methods together.

#include "arrays.cuh"

#ifndef HUB_EDGES
#define HUB_EDGES 4096
#endif
// The minimum number of edges for a warp, and for a block.
const i64 WARP_EDGES = 64, BLOCK_EDGES = HUB_EDGES;
const i64 THREADS = 256, MOST_WARPS = THREADS / WARP_SIZE;  // of a block

__device__ inline i64 sum_of_warp(i64 value) {
    ROLLED for (i64 apart = WARP_SIZE / 2; apart > 0; apart /= 2) {
        value += (i64)__shfl_sync(ALL_LANES, (u64)value, (int)(lane() ^ apart));
    }
    return value;
}

struct Thread {
    static const i64 LANES = 1;
    __device__ i64 parts() const { return 1; }
    __device__ i64 part() const { return 0; }
    __device__ i64 rank() const { return 0; }
    __device__ i64 size() const { return 1; }
    __device__ i64 lane_of_part() const { return 0; }
    __device__ unsigned vote(bool mark) const { return mark; }
    __device__ i64 sum_up_to(i64 value) const { return value; }
    __device__ i64 last_of_part(i64 value) const { return value; }
    __device__ i64 total(i64 value, i64 &before) const {
        before = 0;
        return value;
    }
    __device__ void sync() const {}
};

// Methods of teams whose parts are warps.
struct OfWarps {
    static const i64 LANES = WARP_SIZE;
    __device__ i64 lane_of_part() const { return lane(); }
    __device__ unsigned vote(bool mark) const { return __ballot_sync(ALL_LANES, mark); }
    __device__ i64 sum_up_to(i64 value) const { return sum_up_to_lane(value); }
    __device__ i64 last_of_part(i64 value) const {
        return (i64)__shfl_sync(ALL_LANES, (u64)value, (int)WARP_SIZE - 1);
    }
};

struct Warp : OfWarps {
    __device__ i64 parts() const { return 1; }
    __device__ i64 part() const { return 0; }
    __device__ i64 rank() const { return lane(); }
    __device__ i64 size() const { return WARP_SIZE; }
    // The sum of the values of all threads; `before` is set to the sum over the parts before this one.
    __device__ i64 total(i64 value, i64 &before) const {
        before = 0;
        // Shuffles don't order memory accesses, and a thread with the sum may overwrite values that others have read.
        __syncwarp();
        return sum_of_warp(value);
    }
    __device__ void sync() const { __syncwarp(); }
};

struct Block : OfWarps {
    __device__ i64 parts() const { return blockDim.x / WARP_SIZE; }
    __device__ i64 part() const { return threadIdx.x / WARP_SIZE; }
    __device__ i64 rank() const { return threadIdx.x; }
    __device__ i64 size() const { return blockDim.x; }
    __device__ i64 total(i64 value, i64 &before) const {
        __shared__ i64 sums[MOST_WARPS];
        i64 own = sum_of_warp(value), all = 0;
        if (lane() == 0) sums[part()] = own;
        __syncthreads();
        before = 0;
        ROLLED for (i64 other = 0; other < parts(); other++) {
            if (other == part()) before = all;
            all += sums[other];
        }
        // Other threads may still read.
        __syncthreads();
        return all;
    }
    __device__ void sync() const { __syncthreads(); }
};

// The edges from `low` to `high` that a part of the team processes; parts are in order.
struct Piece {
    i64 low, high;
};

template <class Team>
__device__ inline Piece piece_of(const Team &team, i64 low, i64 high) {
    i64 length = ((high - low + team.parts() - 1) / team.parts() + WARP_SIZE - 1) / WARP_SIZE * WARP_SIZE;
    i64 first = low + team.part() * length, end = first + length;
    return {first < high ? first : high, end < high ? end : high};
}

// The marks of the lanes before this one.
template <class Team>
__device__ inline i64 marks_before(const Team &team, unsigned marks) {
    return __popc(marks & ((1u << team.lane_of_part()) - 1));
}

// Process the columns for a block one by one: those that each warp has marked, relative to its first column.
template <class Work>
__device__ inline void each_long_column(i64 first, i64 columns_per_warp, unsigned marks, const Work &work) {
    __shared__ unsigned marks_of[MOST_WARPS];
    if (lane() == 0) marks_of[Block().part()] = marks;
    __syncthreads();
    for (i64 warp = 0; warp < Block().parts(); warp++) {
        for (unsigned left = marks_of[warp]; left; left &= left - 1) {
            work(Block(), first + warp * columns_per_warp + __ffs((int)left) - 1);
        }
    }
    // Before the marks of the next columns are written.
    __syncthreads();
}

// Process each column by a team that suits the number of edges to read, `walk(column)`. All threads of the block must
// call this. They call `finish` before the next kind of team begins.
template <class Walk, class Work, class Finish>
__device__ inline void each_column(i64 columns, const Walk &walk, const Work &work, const Finish &finish) {
    for (i64 first = (i64)blockIdx.x * blockDim.x; first < columns; first += (i64)gridDim.x * blockDim.x) {
        i64 own = first + threadIdx.x, edges = own < columns ? walk(own) : 0;
        if (own < columns && edges < WARP_EDGES) work(Thread(), own);
        __syncwarp();
        unsigned marks = __ballot_sync(ALL_LANES, edges >= WARP_EDGES && edges < BLOCK_EDGES);
        for (; marks; marks &= marks - 1) work(Warp(), own - lane() + __ffs((int)marks) - 1);
        finish();
        each_long_column(first, WARP_SIZE, __ballot_sync(ALL_LANES, edges >= BLOCK_EDGES), work);
        finish();
    }
}

// The same for work that a single thread can't do, with a warp or a block per column.
template <class Walk, class Work>
__device__ inline void each_column_by_warp(i64 columns, const Walk &walk, const Work &work) {
    i64 warps = Block().parts();
    for (i64 first = (i64)blockIdx.x * warps; first < columns; first += (i64)gridDim.x * warps) {
        i64 own = first + Block().part(), edges = own < columns ? walk(own) : 0;
        if (own < columns && edges < BLOCK_EDGES) work(Warp(), own);
        each_long_column(first, 1, edges >= BLOCK_EDGES, work);
    }
}

// Sort the few places of a thread.
__device__ inline void sort(const Thread &, i64 *places, i64 count) {
    for (i64 next = 1; next < count; next++) {
        i64 moved = places[next], at = next;
        for (; at > 0 && places[at - 1] > moved; at--) places[at] = places[at - 1];
        places[at] = moved;
    }
}

// Sort in place. Sorted places, such as those of complete columns, take one pass. A bitonic sort with all comparisons
// in one direction, so that any number of places can be sorted.
template <class Team>
__device__ inline void sort(const Team &team, i64 *places, i64 count) {
    i64 falls = 0, before;
    ROLLED for (i64 place = team.rank() + 1; place < count; place += team.size()) {
        falls += places[place - 1] > places[place];
    }
    if (team.total(falls, before) == 0) return;
    for (i64 run = 2; run < 2 * count; run *= 2) {
        for (i64 apart = run - 1; apart > 0; apart = apart == run - 1 ? run / 4 : apart / 2) {
            for (i64 place = team.rank(); place < count; place += team.size()) {
                i64 other = place ^ apart;
                if (other <= place || other >= count || places[place] <= places[other]) continue;
                i64 moved = places[place];
                places[place] = places[other];
                places[other] = moved;
            }
            team.sync();
        }
    }
}
