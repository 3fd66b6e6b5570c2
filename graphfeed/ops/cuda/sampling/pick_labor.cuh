// How a warp picks the edges of a segment whose neighbours have the smallest variates (ops/cpu/labor_sample_neighbors.py).

#include "sampling/pick.cuh"

const int TIME_BITS = 48;

// The entries with the smallest values over units, the worst of them on top; only lane 0 touches it.
struct Heap {
    u64 *values, *units;
    i64 *places;
    i64 count, held;

    __device__ bool is_later(i64 left, i64 right) const {
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

    __device__ void keep(u64 value, u64 unit, i64 place) {
        i64 entry = held < count ? held : 0;
        values[entry] = value, units[entry] = unit, places[entry] = place;
        if (held < count) {
            for (; entry > 0 && is_later(entry, (entry - 1) >> 1); entry = (entry - 1) >> 1) {
                swap(entry, (entry - 1) >> 1);
            }
            held++;
            return;
        }
        for (i64 below; (below = 2 * entry + 1) < count; entry = below) {
            if (below + 1 < count && is_later(below + 1, below)) below++;
            if (!is_later(below, entry)) return;
            swap(below, entry);
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

// What a few more than `count` of the values over units will lie below, where the units sum to `total`.
__device__ inline u64 likely_limit(i64 count, i64 total) {
    i64 wanted = count + count / 2 + 8;
    return wanted >= total ? MOST : MOST / (u64)total * (u64)wanted;
}

// Lane 0 enters what one edge offers: its value, or all its events before the limit.
__device__ inline void enter(
    Heap &heap, u64 value, u64 unit, i64 edge, bool events, u64 &limit, u64 &per) {
    if (!events) {
        if (less_product(limit, unit, value, per)) return;
        if (heap.held == heap.count && !less_product(value, per, limit, unit)) return;
        heap.keep(value, unit, edge);
        if (heap.held == heap.count) limit = heap.values[0], per = heap.units[0];
        return;
    }
    u64 time = waiting_time(value);
    for (i64 number = 0; less_product(time, per, limit, unit); number++) {
        heap.keep(time, unit, edge);
        if (heap.held == heap.count) limit = heap.values[0], per = heap.units[0];
        u64 step = waiting_time(draw_bits(value, number));
        time = time < MOST - step ? time + step : MOST;
    }
}

// Fill the heap with the best of a segment. The lanes hash an edge each; of those that may be among the best, lane 0
// enters one after the other, in ascending order.
template <class Sources>
__device__ inline void keep_best(
    const Sources &sources, const i64 *cumulative, const Segment &own, bool events, const Shared &shared, Heap &heap) {
    i64 total = cumulative ? cumulative[own.high - 1] - own.before : own.high - own.low;
    u64 start = likely_limit(heap.count, total);
    if (events) start = (start >> (64 - TIME_BITS - 1)) | 1;
    for (;; start = start > MOST >> 3 ? MOST : start << 3) {
        u64 limit = start, per = 1;
        heap.held = 0;
        for (i64 first = own.low; first < own.high; first += LANES) {
            i64 edge = first + lane();
            u64 value = 0, unit = 0;
            bool candidate = false;
            if (edge < own.high) {
                unit = (u64)weight_of(cumulative, own, edge);
                value = shared.state(sources[edge]);
                // An event comes at value >> 16 at the soonest, for -log2(1 - x) >= x.
                candidate = unit != 0 && (events ? less_product(value >> (64 - TIME_BITS), per, limit, unit)
                                                 : !less_product(limit, unit, value, per));
            }
            for (unsigned left = __ballot_sync(WARP, candidate); left; left &= left - 1) {
                int source = __ffs((int)left) - 1;
                u64 offered = __shfl_sync(WARP, value, source), weight = __shfl_sync(WARP, unit, source);
                if (lane() == 0) enter(heap, offered, weight, first + source, events, limit, per);
                limit = __shfl_sync(WARP, limit, 0);
                per = __shfl_sync(WARP, per, 0);
            }
        }
        if (__shfl_sync(WARP, (u64)heap.held, 0) == (u64)heap.count) return;
    }
}

// Write the edges that a segment is sampled to, `count` by `count_picks`, in ascending order; the whole warp asks, and
// any lane may read them then. `values` and `units` are scratch of as many places.
template <class Sources>
__device__ inline void pick_labor(
    const Sources &sources, const i64 *cumulative, const Segment &own, i64 count, bool replace, const Shared &shared,
    u64 *values, u64 *units, i64 *places) {
    bool events = replace && own.fanout > 0;
    if (!events && count == own.high - own.low) {
        for (i64 number = lane(); number < count; number += LANES) places[number] = own.low + number;
    } else if (!events && cumulative && (own.fanout < 0 || count < own.fanout)) {
        take_eligible(cumulative, own, places);
    } else {
        Heap heap = {values, units, places, count, 0};
        keep_best(sources, cumulative, own, events, shared, heap);
        if (lane() == 0) sort(places, count);
    }
    __syncwarp();
}
