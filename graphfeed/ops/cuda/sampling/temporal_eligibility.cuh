// Which edges of a segment may be sampled at a time (ops/cpu/admit.py). Edges are named by their rank in time.

#include "sampling/pick.cuh"

struct Period {
    const i64 *times;   // null: all edges are before any time
    const i64 *firsts;  // null: no windows
    const i64 *limits;
};

// First place in low .. high - 1 of rising values that is not below the bound, else high.
__device__ inline i64 first_from(const i64 *values, i64 low, i64 high, i64 bound) {
    while (low < high) {
        i64 middle = (low + high) >> 1;
        if (values[middle] < bound) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The part of a segment whose times a column admits.
__device__ inline Segment cut(const Graph &graph, const Period &period, i64 column, const Segment &whole) {
    Segment own = whole;
    if (!period.times) return own;
    own.high = first_from(period.times, own.low, own.high, period.limits[column]);
    if (period.firsts) own.low = first_from(period.times, own.low, own.high, period.firsts[column]);
    own.before = graph.cumulative && own.low > own.start ? graph.cumulative[own.low - 1] : 0;
    return own;
}

// Where an edge by its rank lies in the graph: among those that a second time has left, or in its column's order.
struct Places {
    const i64 *found;  // null: none were left out
    Ints order;        // null: ranks are positions
    __device__ i64 operator()(i64 start, i64 rank) const {
        return found ? found[rank] : order.data ? start + order[rank] : rank;
    }
};
