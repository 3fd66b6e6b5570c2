// How a warp picks the edges of a segment whose neighbours have the smallest variates (ops/cpu/sampling/bottom_k.py).

#include "sampling/pick.cuh"

const int TIME_BITS = 48;

// The entries of the smallest fractions, value over unit, the worst of them on top; only lane 0 touches it.
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

// The time of the first event of a Poisson process in units of 2^-TIME_BITS: -log2(1 - bits / 2^64).
__device__ inline u64 waiting_time(u64 bits) {
    const u64 half = 1ull << 63;
    u64 rest = ~bits | 1, time = 0;
    for (; rest < half; rest <<= 1) time++;
    for (int bit = 0; bit < TIME_BITS; bit++) {
        rest = __umul64hi(rest, rest);
        time <<= 1;
        if (rest < half) rest <<= 1, time++;
    }
    return time;
}

// A limit that a few more than `count` of the fractions are expected to lie below; the units sum to `total`.
__device__ inline u64 likely_limit(i64 count, i64 total) {
    i64 wanted = count + count / 2 + 8;
    return wanted >= total ? MAX_U64 : MAX_U64 / (u64)total * (u64)wanted;
}

// Lane 0 enters one edge: its value, or all its events before the limit.
__device__ inline void enter(
    Heap &heap, u64 value, u64 unit, i64 edge, bool events, u64 &limit, u64 &per) {
    if (!events) {
        if (less_product(limit, unit, value, per)) return;
        if (heap.size == heap.capacity && !less_product(value, per, limit, unit)) return;
        heap.push(value, unit, edge);
        if (heap.size == heap.capacity) limit = heap.values[0], per = heap.units[0];
        return;
    }
    u64 time = waiting_time(value);
    for (i64 number = 0; less_product(time, per, limit, unit); number++) {
        heap.push(time, unit, edge);
        if (heap.size == heap.capacity) limit = heap.values[0], per = heap.units[0];
        u64 step = waiting_time(draw_bits(value, number));
        time = time < MAX_U64 - step ? time + step : MAX_U64;
    }
}

// Fill the heap with the best edges of a segment. Each lane hashes one edge; those that may be among the best are
// entered by lane 0, one after the other and in ascending order, so that ties go to the first.
template <class Sources>
__device__ inline void fill_heap(
    const Sources &sources, const i64 *cumulative, const Segment &own, bool events, const Variates &variates,
    Heap &heap) {
    i64 total = cumulative ? cumulative[own.high - 1] - own.before : own.high - own.low;
    u64 start = likely_limit(heap.capacity, total);
    if (events) start = (start >> (64 - TIME_BITS - 1)) | 1;
    for (;; start = start > MAX_U64 >> 3 ? MAX_U64 : start << 3) {
        u64 limit = start, per = 1;
        heap.size = 0;
        for (i64 first = own.low; first < own.high; first += WARP_SIZE) {
            i64 edge = first + lane();
            u64 value = 0, unit = 0;
            bool candidate = false;
            if (edge < own.high) {
                unit = (u64)weight_of(cumulative, own, edge);
                value = variates.of(sources[edge]);
                // Since -log2(1 - x) >= x, no event comes before value >> 16: most edges need no logarithm.
                candidate = unit != 0 && (events ? less_product(value >> (64 - TIME_BITS), per, limit, unit)
                                                 : !less_product(limit, unit, value, per));
            }
            for (unsigned left = __ballot_sync(ALL_LANES, candidate); left; left &= left - 1) {
                int source = __ffs((int)left) - 1;
                u64 offered = __shfl_sync(ALL_LANES, value, source), weight = __shfl_sync(ALL_LANES, unit, source);
                if (lane() == 0) enter(heap, offered, weight, first + source, events, limit, per);
                limit = __shfl_sync(ALL_LANES, limit, 0);
                per = __shfl_sync(ALL_LANES, per, 0);
            }
        }
        if (__shfl_sync(ALL_LANES, (u64)heap.size, 0) == (u64)heap.capacity) return;
    }
}

// Write the edges that a segment is sampled to, `count` by `count_picks`, in ascending order. The whole warp calls
// this, and then any lane may read the result. `values` and `units` are scratch for `count` entries.
template <class Sources>
__device__ inline void pick_labor(
    const Sources &sources, const i64 *cumulative, const Segment &own, i64 count, bool replace,
    const Variates &variates, u64 *values, u64 *units, i64 *places) {
    bool events = replace && own.fanout > 0;
    if (!events && count == own.high - own.low) {
        for (i64 number = lane(); number < count; number += WARP_SIZE) places[number] = own.low + number;
    } else if (!events && cumulative && (own.fanout < 0 || count < own.fanout)) {
        take_eligible(cumulative, own, places);
    } else {
        Heap heap = {values, units, places, count, 0};
        fill_heap(sources, cumulative, own, events, variates, heap);
        if (lane() == 0) sort(places, count);
    }
    __syncwarp();
}
