// One thread per walk (ops/cpu/sampling/random_walks.py).

#include "random.cuh"

// The number of the draw that stops a walk.
__device__ const i64 STOP = 1ll << 33;

// Arrays of the steps. `firsts` has one value more.
struct Steps {
    const u64 *keys;
    const u64 *stops;  // null: walks don't stop
    const i64 *types;  // null: the graph has no types
    const i64 *firsts;
    i64 length;
};

extern "C" __global__ void random_walks(
    Ints indptr, Ints indices, Ints edge_types, const i64 *cumulative, Steps steps, const i64 *starts,
    const i64 *trees, i64 walks, i64 *out, i64 *edges) {
    EACH(walk, walks) {
        i64 node = starts[walk], step = 0, *nodes = out + walk * (steps.length + 1);
        u64 hash = mix((u64)trees[walk] + GOLDEN);
        nodes[0] = node - steps.firsts[0];
        for (; step < steps.length; step++) {
            i64 begin = indptr[node], low = begin, high = indptr[node + 1];
            u64 state = node_state(mix(steps.keys[step] ^ hash), node);
            if (steps.types) {
                i64 type = steps.types[step];
                low = first_above(edge_types, low, high, type - 1);
                high = first_above(edge_types, low, high, type);
                state = typed_state(state, type);
            }
            if (low == high || (steps.stops && draw_bits(state, STOP) >> 32 < steps.stops[step])) break;
            i64 before = cumulative && low > begin ? cumulative[low - 1] : 0;
            i64 total = cumulative ? cumulative[high - 1] - before : high - low;
            if (total <= 0) break;
            i64 target = draw_below(state, 0, total);
            i64 place = cumulative ? first_above(cumulative, low, high - 1, before + target) : low + target;
            node = indices[place];
            nodes[step + 1] = node - steps.firsts[step + 1];
            if (edges) edges[walk * steps.length + step] = place;
        }
        for (; step < steps.length; step++) {
            nodes[step + 1] = -1;
            if (edges) edges[walk * steps.length + step] = -1;
        }
    }
}
