// The draws of ops/random.py.

#include "arrays.cuh"

__device__ const u64 GOLDEN = 0x9E3779B97F4A7C15ull;
__device__ const u64 NODE = 0xD1B54A32D192ED03ull;
__device__ const u64 EDGE_TYPE = 0x8CB92BA72F3D8DD7ull;
__device__ const u64 TIME = 0xE7037ED1A0B428DBull;
__device__ const u64 SWITCH = 0xA0761D6478BD642Full;
__device__ const u64 UPPER = 0x9E3779B1ull;
__device__ const u64 MAX_U64 = ~0ull;

__device__ inline u64 mix(u64 value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
    return value ^ (value >> 31);
}

// The key of a column: the key of the hop or, if there are trees, of its tree.
__device__ inline u64 key_of(u64 key, const i64 *trees, i64 column) {
    return trees ? mix(key ^ mix((u64)trees[column] + GOLDEN)) : key;
}

__device__ inline u64 node_state(u64 key, i64 node) { return mix(key ^ ((u64)node * NODE)); }

__device__ inline u64 timed_state(u64 key, i64 node, i64 time) {
    return mix(node_state(key, node) ^ ((u64)time * TIME));
}

__device__ inline u64 typed_state(u64 state, i64 edge_type) { return mix(state + ((u64)edge_type + 1) * EDGE_TYPE); }

__device__ inline u64 draw_bits(u64 state, i64 number) { return mix(state + ((u64)number + 1) * GOLDEN); }

__device__ inline i64 draw_below(u64 state, i64 number, i64 bound) {
    return (i64)__umul64hi(draw_bits(state, number), (u64)bound);
}

__device__ inline u64 high_bits(u64 key, i64 node) {
    unsigned bits = (unsigned)(((u64)node ^ key) + ((u64)node >> 32) * UPPER);
    bits = (bits ^ (bits >> 16)) * ((unsigned)(key >> 32) | 1u);
    bits = (bits ^ (bits >> 15)) * 0xD35A2D97u;
    return bits ^ (bits >> 15);
}

// LABOR's variates, which all columns share.
struct Variates {
    u64 first;
    u64 second;
    u64 switch_threshold;
    __device__ u64 of(i64 node) const {
        bool switched = switch_threshold >> 32 != 0 && high_bits(SWITCH, node) < switch_threshold >> 32;
        u64 key = switched ? second : first;
        return high_bits(mix(key), node) << 32 | (unsigned)mix(key ^ ((u64)node * NODE));
    }
};

// Whether a * b < c * d in 128 bits.
__device__ inline bool less_product(u64 a, u64 b, u64 c, u64 d) {
    u64 left = __umul64hi(a, b), right = __umul64hi(c, d);
    return left != right ? left < right : a * b < c * d;
}
