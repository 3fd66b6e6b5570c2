// One thread per node. The items are the seeds and then the neighbours. The order in which threads take the slots makes
// no difference: only slots of one node are compared, and its first item is a minimum.

#include "random.cuh"

extern "C" __global__ void enter_nodes(
    const void *seeds, const void *neighbors, i64 width, i64 num_seeds, i64 size, u64 *keys, i64 mask, i64 *slots,
    i64 *first) {
    Ints given = {seeds, width}, found = {neighbors, width};
    EACH(item, size) {
        u64 node = (u64)(item < num_seeds ? given[item] : found[item - num_seeds]);
        i64 slot = (i64)mix(node) & mask;
        for (;; slot = (slot + 1) & mask) {
            u64 held = atomicCAS(&keys[slot], MAX_U64, node);
            if (held == MAX_U64 || held == node) break;
        }
        slots[item] = slot;
        atomicMin(&first[slot], item);
    }
}

extern "C" __global__ void mark_new(const i64 *slots, const i64 *first, i64 num_seeds, i64 size, i64 *is_new) {
    EACH(edge, size) is_new[edge] = first[slots[num_seeds + edge]] == num_seeds + edge;
}

// `before` holds how many new nodes come before each neighbour; adding the type's `shifts` makes it a position.
extern "C" __global__ void place_nodes(
    const void *seeds, const void *neighbors, i64 width, i64 num_seeds, i64 size, const i64 *slots, const i64 *first,
    const i64 *before, const i64 *seed_starts, const i64 *row_starts, i64 kinds, const i64 *neighbor_starts,
    const i64 *sources, const i64 *shifts, i64 edge_types, i64 *places, void *rows) {
    Ints given = {seeds, width}, found = {neighbors, width};
    EACH(item, size) {
        bool is_first = first[slots[item]] == item;
        i64 edge = item - num_seeds;
        if (edge < 0) {
            i64 kind = part_of(seed_starts, kinds, item);
            i64 place = item - seed_starts[kind];
            store(rows, width, row_starts[kind] + place, given[item]);
            if (is_first) places[slots[item]] = place;
        } else if (is_first) {
            i64 edge_type = part_of(neighbor_starts, edge_types, edge);
            i64 place = before[edge] + shifts[edge_type];
            store(rows, width, row_starts[sources[edge_type]] + place, found[edge]);
            places[slots[item]] = place;
        }
    }
}

extern "C" __global__ void relabel(const i64 *slots, const i64 *places, i64 size, i64 width, void *local) {
    EACH(edge, size) store(local, width, edge, places[slots[edge]]);
}
