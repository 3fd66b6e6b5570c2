// Selection of the edges with the smallest variates by a warp or a block (ops/cpu/sampling/passes/labor.py).

#include "sampling/pick.cuh"

const int TIME_BITS = 48;

// A heap of the smallest fractions, value / unit, with the largest at the root. Only one thread accesses it.
struct Heap {
    u64 *values, *units;
    i64 *places;
    i64 capacity, size;

    __device__ bool is_worse(i64 left, i64 right) const {
        if (less_product(values[right], units[left], values[left], units[right])) return true;
        if (less_product(values[left], units[right], values[right], units[left])) return false;
        return places[left] > places[right];
    }

    __device__ void swap(i64 left, i64 right) {
        u64 value = values[left], unit = units[left];
        i64 place = places[left];
        values[left] = values[right], units[left] = units[right], places[left] = places[right];
        values[right] = value, units[right] = unit, places[right] = place;
    }

    __device__ void push(u64 value, u64 unit, i64 place) {
        i64 entry = size < capacity ? size : 0;
        values[entry] = value, units[entry] = unit, places[entry] = place;
        if (size < capacity) {
            for (; entry > 0 && is_worse(entry, (entry - 1) >> 1); entry = (entry - 1) >> 1) {
                swap(entry, (entry - 1) >> 1);
            }
            size++;
            return;
        }
        for (i64 child; (child = 2 * entry + 1) < capacity; entry = child) {
            if (child + 1 < capacity && is_worse(child + 1, child)) child++;
            if (!is_worse(child, entry)) return;
            swap(child, entry);
        }
    }
};

// The time of the first event of a Poisson process, -log2(1 - bits / 2^64), in units of 2^-TIME_BITS.
__device__ inline u64 waiting_time(u64 bits) {
    const u64 half = 1ull << 63;
    u64 rest = ~bits | 1, time = 0;
    for (; rest < half; rest <<= 1) time++;
    ROLLED for (int bit = 0; bit < TIME_BITS; bit++) {
        rest = __umul64hi(rest, rest);
        time <<= 1;
        if (rest < half) rest <<= 1, time++;
    }
    return time;
}

// A limit that slightly more than `count` of the fractions are expected to be below. The units sum to `total`.
__device__ inline u64 likely_limit(i64 count, i64 total) {
    i64 wanted = count + count / 2 + 8;
    return wanted >= total ? MAX_U64 : MAX_U64 / (u64)total * (u64)wanted;
}

// The worst of the best edges so far, or an expected bound.
struct Limit {
    u64 value, unit;
    i64 place;
    __device__ bool admits(u64 other, u64 per, i64 edge) const {
        if (less_product(other, unit, value, per)) return true;
        return !less_product(value, per, other, unit) && edge < place;
    }
};

__device__ inline Limit limit_of(const Heap &heap, const Limit &before) {
    if (heap.size < heap.capacity) return before;
    return {heap.values[0], heap.units[0], heap.places[0]};
}

// Insert an edge, in one thread: its value, or all its events before the limit. The order of edges doesn't matter.
__device__ inline void enter(Heap &heap, u64 value, u64 unit, i64 edge, bool events, Limit &limit) {
    u64 time = events ? waiting_time(value) : value;
    for (i64 number = 0; limit.admits(time, unit, edge); number++) {
        heap.push(time, unit, edge);
        limit = limit_of(heap, limit);
        if (!events) return;
        u64 step = waiting_time(draw_bits(value, number));
        time = time < MAX_U64 - step ? time + step : MAX_U64;
    }
}

// The competing edges of a segment.
template <class Sources>
struct Rivals {
    const Sources &sources;
    const i64 *cumulative;
    const Segment &own;
    bool events;
    const Variates &variates;

    __device__ u64 unit(i64 edge) const { return (u64)weight_of(cumulative, own, edge); }

    // Since -log2(1 - x) >= x, no event is before value >> 16, so most edges need no logarithm. For the others, it is
    // computed here, in parallel, and not only by the thread that inserts them.
    __device__ bool may_enter(u64 value, u64 per, i64 edge, const Limit &limit) const {
        if (per == 0 || !limit.admits(events ? value >> (64 - TIME_BITS) : value, per, edge)) return false;
        return !events || limit.admits(waiting_time(value), per, edge);
    }
};

// Insert the edges of a segment. Each lane hashes an edge; lane 0 inserts those that may be among the best.
template <class Sources>
__device__ inline i64 enter_all(const Warp &, const Rivals<Sources> &rivals, Limit limit, Heap &heap) {
    heap.size = 0;
    for (i64 first = rivals.own.low; first < rivals.own.high; first += WARP_SIZE) {
        i64 edge = first + lane();
        u64 value = 0, unit = 0;
        bool candidate = false;
        if (edge < rivals.own.high) {
            unit = rivals.unit(edge);
            value = rivals.variates.of(rivals.sources[edge]);
            candidate = rivals.may_enter(value, unit, edge, limit);
        }
        for (unsigned left = __ballot_sync(ALL_LANES, candidate); left; left &= left - 1) {
            int source = __ffs((int)left) - 1;
            u64 offered = __shfl_sync(ALL_LANES, value, source), weight = __shfl_sync(ALL_LANES, unit, source);
            if (lane() == 0) enter(heap, offered, weight, first + source, rivals.events, limit);
            limit.value = __shfl_sync(ALL_LANES, limit.value, 0);
            limit.unit = __shfl_sync(ALL_LANES, limit.unit, 0);
            limit.place = (i64)__shfl_sync(ALL_LANES, (u64)limit.place, 0);
        }
    }
    return (i64)__shfl_sync(ALL_LANES, (u64)heap.size, 0);
}

const i64 QUEUE = 2048;

// The same for a block: all threads hash edges and queue those that may be among the best, which thread 0 inserts.
template <class Sources>
__device__ inline i64 enter_all(const Block &team, const Rivals<Sources> &rivals, Limit limit, Heap &heap) {
    __shared__ i64 queue[QUEUE];
    __shared__ u64 queued, limits[3];
    heap.size = 0;
    if (team.rank() == 0) queued = 0;
    team.sync();
    for (i64 low = rivals.own.low; low < rivals.own.high; low += QUEUE) {
        i64 high = rivals.own.high - low < QUEUE ? rivals.own.high : low + QUEUE;
        for (i64 edge = low + team.rank(); edge < high; edge += team.size()) {
            bool candidate = rivals.may_enter(rivals.variates.of(rivals.sources[edge]), rivals.unit(edge), edge, limit);
            if (candidate) queue[atomicAdd(&queued, 1ull)] = edge;
        }
        team.sync();
        if (team.rank() == 0) {
            for (u64 next = 0; next < queued; next++) {
                i64 edge = queue[next];
                enter(heap, rivals.variates.of(rivals.sources[edge]), rivals.unit(edge), edge, rivals.events, limit);
            }
            queued = 0;
            limits[0] = limit.value, limits[1] = limit.unit, limits[2] = (u64)limit.place;
        }
        team.sync();
        limit = {limits[0], limits[1], (i64)limits[2]};
    }
    i64 before;
    return team.total(heap.size, before);
}

// Write the sampled edges of a segment, `count` by `count_picks`, in ascending order. The whole team must call this;
// afterwards, any thread may read the result. `values` and `units` are scratch for `count` entries.
template <class Team, class Sources>
__device__ inline void pick_labor(
    const Team &team, const Sources &sources, const i64 *cumulative, const Segment &own, i64 count, bool replace,
    const Variates &variates, u64 *values, u64 *units, i64 *places) {
    bool events = replace && own.fanout > 0;
    if (!events && count == own.high - own.low) {
        ROLLED for (i64 number = team.rank(); number < count; number += team.size()) places[number] = own.low + number;
    } else if (!events && cumulative && (own.fanout < 0 || count < own.fanout)) {
        take_eligible(team, cumulative, own, places);
    } else {
        Rivals<Sources> rivals = {sources, cumulative, own, events, variates};
        Heap heap = {values, units, places, count, 0};
        u64 start = likely_limit(count, cumulative ? cumulative[own.high - 1] - own.before(cumulative) : own.high - own.low);
        if (events) start = (start >> (64 - TIME_BITS - 1)) | 1;
        while (enter_all(team, rivals, {start, 1, own.high}, heap) < count) {
            start = start > MAX_U64 >> 3 ? MAX_U64 : start << 3;
        }
        team.sync();
        sort(team, places, count);
    }
    team.sync();
}
