// Which edges of a segment are sampled (ops/cpu/sampling/pick.py).

#include "arrays.cuh"
#include "random.cuh"

struct Graph {
    Ints indptr;
    const i64 *cumulative;  // null: no weights
    Ints types;
    const i64 *fanouts;  // null: one for all types
    i64 fanout;
};

// The arrays of a graph of which some columns may be cached.
struct CachedGraph {
    Ints indptr;
    const i64 *weights, *cached_weights;
    Ints types;
    const void *cached_types;
    const i64 *cache_offsets, *fanouts;
    i64 fanout;
    __device__ Graph of(i64 column) const {
        const i64 *cumulative = column_values(weights, cached_weights, cache_offsets, column, 8);
        const void *kinds = column_values(types.data, cached_types, cache_offsets, column, types.width);
        return {indptr, cumulative, {kinds, types.width}, fanouts, fanout};
    }
};

struct Segment {
    i64 low, high, before, fanout, type, start, end;
};

__device__ inline Segment open_column(const Graph &graph, i64 node) {
    i64 start = graph.indptr[node];
    return {start, start, 0, 0, 0, start, graph.indptr[node + 1]};
}

__device__ inline bool next_segment(const Graph &graph, Segment &own) {
    own.low = own.high;
    if (own.low >= own.end) return false;
    own.type = graph.fanouts ? graph.types[own.low] : 0;
    own.high = graph.fanouts ? first_above(graph.types, own.low, own.end, own.type) : own.end;
    own.before = graph.cumulative && own.low > own.start ? graph.cumulative[own.low - 1] : 0;
    own.fanout = graph.fanouts ? graph.fanouts[own.type] : graph.fanout;
    return true;
}

// An edge's own weight, 1 without weights.
__device__ inline i64 weight_of(const i64 *cumulative, const Segment &own, i64 edge) {
    if (!cumulative) return 1;
    return cumulative[edge] - (edge == own.low ? own.before : cumulative[edge - 1]);
}

__device__ inline i64 count_eligible(const i64 *cumulative, const Segment &own, i64 most) {
    if (!cumulative) return own.high - own.low;
    i64 before = own.before, count = 0;
    for (i64 edge = own.low; edge < own.high; edge++) {
        if (cumulative[edge] == before) continue;
        before = cumulative[edge];
        if (++count == most) break;
    }
    return count;
}

// The same by a whole warp: one thread would take long on a high-degree column. It may count a few more than `most`.
__device__ inline i64 count_eligible_by_warp(const i64 *cumulative, const Segment &own, i64 most) {
    if (!cumulative) return own.high - own.low;
    i64 count = 0;
    for (i64 first = own.low; first < own.high && (most < 0 || count < most); first += WARP_SIZE) {
        i64 edge = first + lane();
        count += __popc(__ballot_sync(ALL_LANES, edge < own.high && weight_of(cumulative, own, edge) != 0));
    }
    return count;
}

template <bool BY_WARP = false>
__device__ inline i64 count_picks(const i64 *cumulative, const Segment &own, bool replace) {
    if (own.low == own.high || own.fanout == 0) return 0;
    i64 most = replace && own.fanout > 0 ? 1 : own.fanout;
    i64 eligible = BY_WARP ? count_eligible_by_warp(cumulative, own, most) : count_eligible(cumulative, own, most);
    if (replace && own.fanout > 0) return eligible > 0 ? own.fanout : 0;
    return own.fanout < 0 || eligible < own.fanout ? eligible : own.fanout;
}

// First edge whose cumulative weight exceeds the target, which lies below the last one's.
__device__ inline i64 find_edge(const i64 *cumulative, const Segment &own, i64 target) {
    return first_above(cumulative, own.low, own.high - 1, own.before + target);
}

__device__ inline bool insert(i64 *table, i64 slots, i64 position) {
    i64 slot = (i64)((u64)position * 0x9E3779B1ull % (u64)slots);
    while (table[slot] != -1) {
        if (table[slot] == position) return false;
        slot = slot + 1 == slots ? 0 : slot + 1;
    }
    table[slot] = position;
    return true;
}

// Floyd's algorithm. With a table, of twice as many slots as picks, picks are looked up in it; else each pick is
// compared with all before it.
__device__ inline void pick_plain(const Segment &own, i64 count, u64 state, i64 *out, i64 *table) {
    i64 degree = own.high - own.low;
    for (i64 number = 0; number < count; number++) {
        i64 last = degree - count + number;
        i64 position = own.low + draw_below(state, number, last + 1);
        bool taken = false;
        if (table) {
            taken = !insert(table, 2 * count, position);
            if (taken) insert(table, 2 * count, own.low + last);
        } else {
            for (i64 chosen = 0; chosen < number && !taken; chosen++) taken = out[chosen] == position;
        }
        out[number] = taken ? own.low + last : position;
    }
}

// Distinct edges one after the other by weight; the weight of each is cut out of the rest.
__device__ inline void pick_weighted(const i64 *cumulative, const Segment &own, i64 count, u64 state, i64 *out) {
    i64 remaining = cumulative[own.high - 1] - own.before;
    for (i64 number = 0; number < count; number++) {
        i64 target = draw_below(state, number, remaining), place = 0;
        for (; place < number; place++) {
            i64 edge = out[place], start = edge == own.low ? own.before : cumulative[edge - 1];
            if (own.before + target < start) break;
            target += cumulative[edge] - start;
        }
        i64 edge = find_edge(cumulative, own, target);
        for (i64 shifted = number; shifted > place; shifted--) out[shifted] = out[shifted - 1];
        out[place] = edge;
        remaining -= cumulative[edge] - (edge == own.low ? own.before : cumulative[edge - 1]);
    }
}

__device__ inline void pick(
    const i64 *cumulative, const Segment &own, i64 count, bool replace, u64 state, i64 *out, i64 *table) {
    if (replace && own.fanout > 0) {
        i64 total = cumulative ? cumulative[own.high - 1] - own.before : own.high - own.low;
        for (i64 number = 0; number < count; number++) {
            i64 target = draw_below(state, number, total);
            out[number] = cumulative ? find_edge(cumulative, own, target) : own.low + target;
        }
    } else if (!cumulative && count == own.high - own.low) {
        for (i64 number = 0; number < count; number++) out[number] = own.low + number;
    } else if (!cumulative) {
        pick_plain(own, count, state, out, table);
    } else if (own.fanout < 0 || count < own.fanout) {
        i64 before = own.before, number = 0;
        for (i64 edge = own.low; edge < own.high; edge++) {
            if (cumulative[edge] != before) out[number++] = edge;
            before = cumulative[edge];
        }
    } else {
        pick_weighted(cumulative, own, count, state, out);
    }
}

// Write all edges of a segment that have a weight, by a whole warp; return how many there are.
__device__ inline i64 take_eligible(const i64 *cumulative, const Segment &own, i64 *out) {
    i64 number = 0;
    for (i64 first = own.low; first < own.high; first += WARP_SIZE) {
        i64 edge = first + lane();
        bool has = edge < own.high && weight_of(cumulative, own, edge) != 0;
        unsigned all = __ballot_sync(ALL_LANES, has);
        if (has) out[number + __popc(all & ((1u << lane()) - 1))] = edge;
        number += __popc(all);
    }
    return number;
}

// Heapsort: in place, and never quadratic. Places that ascend already, as those of whole columns do, take one pass.
__device__ inline void sift(i64 *places, i64 root, i64 count) {
    for (i64 child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && places[child + 1] > places[child]) child++;
        if (places[child] <= places[root]) return;
        i64 moved = places[root];
        places[root] = places[child];
        places[child] = moved;
    }
}

__device__ inline void sort(i64 *places, i64 count) {
    i64 rising = 1;
    while (rising < count && places[rising - 1] <= places[rising]) rising++;
    if (rising >= count) return;
    for (i64 root = count / 2 - 1; root >= 0; root--) sift(places, root, count);
    for (i64 last = count - 1; last > 0; last--) {
        i64 moved = places[0];
        places[0] = places[last];
        places[last] = moved;
        sift(places, 0, last);
    }
}
