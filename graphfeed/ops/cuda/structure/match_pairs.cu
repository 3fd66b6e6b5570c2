#include "random.cuh"

struct Pairs {
    const i64 *ends;
    u64 mask;
    __device__ u64 slot(i64 source, i64 destination) const { return mix(mix((u64)source) + (u64)destination) & mask; }
    __device__ bool is(u64 pair, i64 source, i64 destination) const {
        return ends[2 * pair] == source && ends[2 * pair + 1] == destination;
    }
};

// It doesn't matter which of several equal pairs gets the slot.
extern "C" __global__ void enter_pairs(const i64 *ends, i64 size, u64 *table, u64 mask) {
    Pairs pairs = {ends, mask};
    EACH(pair, size) {
        i64 source = ends[2 * pair], destination = ends[2 * pair + 1];
        for (u64 slot = pairs.slot(source, destination);; slot = (slot + 1) & mask) {
            u64 held = atomicCAS(&table[slot], MAX_U64, (u64)pair);
            if (held == MAX_U64 || pairs.is(held, source, destination)) break;
        }
    }
}

extern "C" __global__ void match_pairs(
    Ints starts, Ints from, Ints rows, Ints to, const i64 *ends, const u64 *table, u64 mask, i64 columns, i64 edges,
    i64 *out) {
    Pairs pairs = {ends, mask};
    EACH(edge, edges) {
        i64 source = rows.data ? rows[from[edge]] : from[edge], destination = to[part_of(starts, columns, edge)];
        u64 slot = pairs.slot(source, destination);
        while (table[slot] != MAX_U64 && !pairs.is(table[slot], source, destination)) slot = (slot + 1) & mask;
        out[edge] = table[slot] != MAX_U64;
    }
}
