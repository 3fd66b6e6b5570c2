// One thread per node. The items are the seeds, followed by the neighbours. The order in which threads claim slots
// doesn't matter: only slots of the same node are compared, and its first item is a minimum.
//
// `most_seeds` and `most_neighbors` may be upper bounds; `num_seeds` and `num_neighbors` then point to the actual
// numbers.

#include "random.cuh"

// Insert a node into the first slot that is free or has the node; return the slot.
template <class Word>
__device__ inline i64 enter(const OutInts &keys, const OutInts &first, i64 mask, i64 node, i64 item) {
    const Word none = (Word)MAX_U64;
    i64 slot = (i64)mix((u64)node) & mask;
    for (;; slot = (slot + 1) & mask) {
        Word held = atomicCAS((Word *)keys.data + slot, none, (Word)node);
        if (held == none || held == (Word)node) break;
    }
    atomicMin((Word *)first.data + slot, (Word)item);
    return slot;
}

// `positions` of the neighbours in `neighbors`; null if these are only the neighbours, in order.
extern "C" __global__ void enter_nodes(
    Ints neighbors, const i64 *positions, Ints seeds, i64 most_seeds, const i64 *num_seeds, i64 most_neighbors,
    const i64 *num_neighbors, OutInts keys, OutInts first, i64 mask, i64 *slots) {
    i64 last_seed = counted(num_seeds, most_seeds), last_edge = counted(num_neighbors, most_neighbors);
    EACH(item, most_seeds + most_neighbors) {
        i64 edge = item - most_seeds;
        if (edge < 0 ? item >= last_seed : edge >= last_edge) continue;
        i64 node = edge < 0 ? seeds[item] : neighbors[positions ? positions[edge] : edge];
        bool is_narrow = keys.width == 4;
        slots[item] = is_narrow ? enter<unsigned>(keys, first, mask, node, item) : enter<u64>(keys, first, mask, node, item);
    }
}

// Mark new nodes, for a running sum. `is_new` has an additional first value, 0.
extern "C" __global__ void mark_new(
    const i64 *slots, Ints first, i64 most_seeds, i64 most_neighbors, const i64 *num_neighbors, i64 *is_new) {
    i64 edges = counted(num_neighbors, most_neighbors);
    EACH(place, most_neighbors + 1) {
        i64 item = most_seeds + place - 1;
        is_new[place] = place > 0 && place <= edges && first[slots[item]] == item;
    }
}

// In the first block: where the rows of each node type start, and the `shifts` of each edge type's new nodes.
// `new_before` has the number of new nodes before each neighbour. The starts of an edge type's neighbours are given, or
// read from `edges_before` at the start of its part. `next_parts` are those of the next hop.
extern "C" __global__ void count_rows(
    const i64 *new_before, const i64 *edges_before, const i64 *parts, const i64 *seed_starts, i64 kinds,
    const i64 *sources, const i64 *destinations, i64 edge_types, i64 *neighbor_starts, i64 *shifts, i64 *row_starts,
    i64 *next_parts) {
    if (blockIdx.x > 0) return;
    for (i64 type = threadIdx.x; edges_before && type <= edge_types; type += blockDim.x) {
        neighbor_starts[type] = edges_before[type < edge_types ? parts[type] : parts[type] - 1];
    }
    __syncthreads();
    for (i64 kind = threadIdx.x; kind < kinds; kind += blockDim.x) {
        i64 known = seed_starts[kind + 1] - seed_starts[kind];
        for (i64 type = 0; type < edge_types; type++) {
            if (sources[type] != kind) continue;
            i64 before = new_before[neighbor_starts[type]];
            shifts[type] = known - before;
            known += new_before[neighbor_starts[type + 1]] - before;
        }
        row_starts[kind + 1] = known;
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    row_starts[0] = 0;
    for (i64 kind = 0; kind < kinds; kind++) row_starts[kind + 1] += row_starts[kind];
    if (!next_parts) return;
    next_parts[0] = 0;
    for (i64 type = 0; type < edge_types; type++) {
        i64 kind = destinations[type];
        next_parts[type + 1] = next_parts[type] + row_starts[kind + 1] - row_starts[kind] + 1;
    }
}

// `before` has the number of new nodes before each neighbour; adding the type's shift yields a position. Without types
// (no `kinds`), the shift is the number of seeds, and the ends of the neighbours, the rows and the next hop's column
// starts are written if requested. With `first_ids`, the rows' ids within their node type are written to `own_ids`.
extern "C" __global__ void place_nodes(
    Ints seeds, i64 most_seeds, const i64 *num_seeds, i64 most_neighbors, const i64 *num_neighbors, const i64 *slots,
    Ints keys, Ints first, const i64 *before, const i64 *seed_starts, const i64 *row_starts, i64 kinds,
    const i64 *neighbor_starts, const i64 *sources, const i64 *shifts, i64 edge_types, const i64 *first_ids,
    OutInts rows, OutInts own_ids, OutInts local, i64 *edge_ends, i64 *row_ends, i64 *next_ends) {
    i64 last_seed = counted(num_seeds, most_seeds), last_edge = counted(num_neighbors, most_neighbors);
    auto write_row = [&](i64 kind, i64 place, i64 node) {
        i64 row = (kinds ? row_starts[kind] : 0) + place;
        rows.put(row, node);
        if (first_ids) own_ids.put(row, node - first_ids[kind]);
    };
    EACH(item, most_seeds + most_neighbors) {
        if (item == 0 && row_ends) {
            i64 count = last_seed + before[most_neighbors];
            row_ends[1] = count;
            if (next_ends) edge_ends[1] = last_edge, next_ends[1] = count + 1;
        }
        if (item < most_seeds) {
            if (item >= last_seed) continue;
            i64 kind = kinds ? part_of(seed_starts, kinds, item) : 0;
            write_row(kind, kinds ? item - seed_starts[kind] : item, seeds[item]);
            continue;
        }
        if (item - most_seeds >= last_edge) continue;
        i64 slot = slots[item], origin = first[slot], edge = origin - most_seeds;
        i64 edge_type = kinds && edge >= 0 ? part_of(neighbor_starts, edge_types, edge) : 0, place = origin;
        if (edge >= 0) place = before[edge] + (kinds ? shifts[edge_type] : last_seed);
        else if (kinds) place = origin - seed_starts[part_of(seed_starts, kinds, origin)];
        if (origin == item) write_row(kinds ? sources[edge_type] : 0, place, keys[slot]);
        local.put(item - most_seeds, place);
    }
}
