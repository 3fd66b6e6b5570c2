// Eligibility of the edges of a segment by time (ops/cpu/sampling/passes/in_time.py). Edges are identified by their
// rank in the order of time.

#include "sampling/pick.cuh"

struct TimeRange {
    const i64 *times;   // null: all edges are before any time
    const i64 *windows;  // null: no windows
    const i64 *limits;
    // The first time inside the window of a column, `limit - window + 1`. A window of 0 is empty.
    __device__ i64 first(i64 column) const {
        i64 window = windows[column], limit = limits[column];
        i64 first = (i64)((u64)limit - (u64)(window - (window > 0)));
        return first > limit ? ALWAYS : first;
    }
};

// The first position in low .. high - 1 whose value, in ascending order, is not below the bound; high if there is none.
__device__ inline i64 first_from(const i64 *values, i64 low, i64 high, i64 bound) {
    while (low < high) {
        i64 middle = (low + high) >> 1;
        if (values[middle] < bound) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The edges of a segment whose times are eligible for a column.
__device__ inline Segment eligible_part(const Graph &graph, const TimeRange &range, i64 column, const Segment &whole) {
    Segment own = whole;
    if (!range.times) return own;
    own.high = first_from(range.times, own.low, own.high, range.limits[column]);
    if (range.windows) own.low = first_from(range.times, own.low, own.high, range.first(column));
    return own;
}

// The position in the graph of the edge at a rank: of the gathered edges, or in the order of its column.
struct RankPositions {
    const i64 *found;  // null: no edges were gathered
    Ints order;        // null: ranks are positions
    __device__ i64 operator()(i64 start, i64 rank) const {
        return found ? found[rank] : order.data ? start + order[rank] : rank;
    }
    // Replace the ranks that a team has picked from a column by positions.
    template <class Team>
    __device__ void move(const Team &team, i64 start, i64 count, i64 *ranks) const {
        if (!found && !order.data) return;
        ROLLED for (i64 number = team.rank(); number < count; number += team.size()) {
            ranks[number] = (*this)(start, ranks[number]);
        }
    }
};

// The source of each edge of a column, by rank.
struct RankedSources {
    Ints indices;
    RankPositions position_of;
    i64 start;
    __device__ i64 operator[](i64 rank) const { return indices[position_of(start, rank)]; }
};
