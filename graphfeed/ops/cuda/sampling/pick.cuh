// Selection of edges of a segment (ops/cpu/sampling/passes/uniform.py).

#include "random.cuh"
#include "sampling/teams.cuh"

struct Graph {
    Ints indptr;
    const i64 *cumulative;  // null: no weights
    Ints types;
    const i64 *fanouts;  // null: one for all types
    i64 fanout;
};

// The columns of a hop: all of them or, if the CPU doesn't know their number, the first ones.
struct Columns {
    Ints nodes;
    i64 most;
    const i64 *number;  // null: `most`
    __device__ i64 count() const { return counted(number, most); }
};

struct Segment {
    i64 low, high, fanout, type, start, end;
    // The sum of the weights before it.
    __device__ i64 before(const i64 *cumulative) const { return low > start ? cumulative[low - 1] : 0; }
};

// An invalid node (-1) has no edges.
__device__ inline i64 degree_of(const Ints &indptr, i64 node) { return node < 0 ? 0 : indptr[node + 1] - indptr[node]; }

__device__ inline Segment open_column(const Graph &graph, i64 node) {
    i64 start = node < 0 ? 0 : graph.indptr[node];
    return {start, start, 0, 0, start, start + degree_of(graph.indptr, node)};
}

__device__ inline bool next_segment(const Graph &graph, Segment &own) {
    own.low = own.high;
    if (own.low >= own.end) return false;
    own.type = graph.fanouts ? graph.types[own.low] : 0;
    own.high = graph.fanouts ? first_above(graph.types, own.low, own.end, own.type) : own.end;
    own.fanout = graph.fanouts ? graph.fanouts[own.type] : graph.fanout;
    return true;
}

// The weight of an edge; 1 without weights.
__device__ inline i64 weight_of(const i64 *cumulative, const Segment &own, i64 edge) {
    if (!cumulative) return 1;
    return cumulative[edge] - (edge > own.start ? cumulative[edge - 1] : 0);
}

// The number of edges with a positive weight. May stop counting after `most`. Reads increasingly many edges at once.
template <class Team>
__device__ inline i64 count_eligible(const Team &team, const i64 *cumulative, const Segment &own, i64 most) {
    if (!cumulative) return own.high - own.low;
    i64 count = 0, before;
    for (i64 low = own.low, length = team.size(); low < own.high && (most < 0 || count < most); length *= 2) {
        i64 high = own.high - low < length ? own.high : low + length, mine = 0;
        ROLLED for (i64 edge = low + team.rank(); edge < high; edge += team.size()) {
            mine += weight_of(cumulative, own, edge) != 0;
        }
        count += team.total(mine, before);
        low = high;
    }
    return count;
}

template <class Team>
__device__ inline i64 count_picks(const Team &team, const i64 *cumulative, const Segment &own, bool replace) {
    if (own.low == own.high || own.fanout == 0) return 0;
    i64 eligible = count_eligible(team, cumulative, own, replace && own.fanout > 0 ? 1 : own.fanout);
    if (replace && own.fanout > 0) return eligible > 0 ? own.fanout : 0;
    return own.fanout < 0 || eligible < own.fanout ? eligible : own.fanout;
}

// Write all edges of a segment with a positive weight.
template <class Team>
__device__ inline void take_eligible(const Team &team, const i64 *cumulative, const Segment &own, i64 *out) {
    Piece piece = piece_of(team, own.low, own.high);
    i64 number = 0;
    if (team.parts() > 1) {
        i64 mine = 0;
        ROLLED for (i64 edge = piece.low + team.lane_of_part(); edge < piece.high; edge += Team::LANES) {
            mine += weight_of(cumulative, own, edge) != 0;
        }
        team.total(mine, number);
    }
    ROLLED for (i64 first = piece.low; first < piece.high; first += Team::LANES) {
        i64 edge = first + team.lane_of_part();
        bool has = edge < piece.high && weight_of(cumulative, own, edge) != 0;
        unsigned all = team.vote(has);
        if (has) out[number + marks_before(team, all)] = edge;
        number += __popc(all);
    }
}

// The first edge whose cumulative weight exceeds the target, which is below that of the last edge.
__device__ inline i64 find_edge(const i64 *cumulative, const Segment &own, i64 target) {
    return first_above(cumulative, own.low, own.high - 1, own.before(cumulative) + target);
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

// Floyd's algorithm. With a table, which has twice as many slots as picks, picks are looked up in it; otherwise each
// pick is compared with all previous ones.
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

// Select distinct edges one by one in proportion to their weights, excluding the weights of previous ones.
__device__ inline void pick_weighted(const i64 *cumulative, const Segment &own, i64 count, u64 state, i64 *out) {
    i64 remaining = cumulative[own.high - 1] - own.before(cumulative);
    for (i64 number = 0; number < count; number++) {
        i64 target = draw_below(state, number, remaining), place = 0;
        for (; place < number; place++) {
            i64 edge = out[place], start = edge > own.start ? cumulative[edge - 1] : 0;
            if (own.before(cumulative) + target < start) break;
            target += cumulative[edge] - start;
        }
        i64 edge = find_edge(cumulative, own, target);
        for (i64 shifted = number; shifted > place; shifted--) out[shifted] = out[shifted - 1];
        out[place] = edge;
        remaining -= weight_of(cumulative, own, edge);
    }
}

// Pick the edges of a segment if draws are independent, and return whether they are; otherwise one thread must pick.
template <class Team>
__device__ inline bool pick_together(
    const Team &team, const i64 *cumulative, const Segment &own, i64 count, bool replace, u64 state, i64 *out) {
    if (replace && own.fanout > 0) {
        i64 total = cumulative ? cumulative[own.high - 1] - own.before(cumulative) : own.high - own.low;
        for (i64 number = team.rank(); number < count; number += team.size()) {
            i64 target = draw_below(state, number, total);
            out[number] = cumulative ? find_edge(cumulative, own, target) : own.low + target;
        }
    } else if (!cumulative && count == own.high - own.low) {
        for (i64 number = team.rank(); number < count; number += team.size()) out[number] = own.low + number;
    } else if (cumulative && (own.fanout < 0 || count < own.fanout)) {
        take_eligible(team, cumulative, own, out);
    } else {
        return false;
    }
    return true;
}

// A segment that a team can't process in parallel. Each thread is assigned one, and when all have one, they pick.
struct Turn {
    Segment own;
    i64 count, next;  // `next`: the thread to assign next; equal for the whole team
    u64 state;
    i64 *out;
};
