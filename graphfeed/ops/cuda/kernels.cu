// The device code of every op. Its results equal those of ops/cpu bit for bit: decisions are made on integers, and
// atomics stand only where the result doesn't depend on their order.
//
// Every parameter is 8 bytes wide. Ids come as a pointer and the bytes of one id, for int32 and int64 share a kernel.
// Loops stride by the grid, so that a launch of any size does all the work.

typedef long long i64;
typedef unsigned long long u64;

#define EACH(item, count) \
    for (i64 item = (i64)blockIdx.x * blockDim.x + threadIdx.x; item < (count); item += (i64)gridDim.x * blockDim.x)

// Integers of 1 (unsigned), 2, 4 or 8 bytes.
struct Ints {
    const void *data;
    i64 width;
    __device__ i64 operator[](i64 at) const {
        switch (width) {
            case 8: return ((const i64 *)data)[at];
            case 4: return ((const int *)data)[at];
            case 2: return ((const short *)data)[at];
            default: return ((const unsigned char *)data)[at];
        }
    }
};

__device__ inline void store(void *data, i64 width, i64 at, i64 value) {
    switch (width) {
        case 8: ((i64 *)data)[at] = value; break;
        case 4: ((int *)data)[at] = (int)value; break;
        case 2: ((short *)data)[at] = (short)value; break;
        default: ((unsigned char *)data)[at] = (unsigned char)value;
    }
}

// ---- random: the draws of ops/random.py

__device__ const u64 GOLDEN = 0x9E3779B97F4A7C15ull;
__device__ const u64 NODE = 0xD1B54A32D192ED03ull;
__device__ const u64 EDGE_TYPE = 0x8CB92BA72F3D8DD7ull;
__device__ const u64 TURN = 0xA0761D6478BD642Full;
__device__ const u64 MOST = ~0ull;

__device__ inline u64 mix(u64 value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
    return value ^ (value >> 31);
}

__device__ inline u64 node_state(u64 key, i64 node) { return mix(key ^ ((u64)node * NODE)); }

__device__ inline u64 typed_state(u64 state, i64 edge_type) { return mix(state + ((u64)edge_type + 1) * EDGE_TYPE); }

__device__ inline u64 draw_bits(u64 state, i64 number) { return mix(state + ((u64)number + 1) * GOLDEN); }

__device__ inline i64 draw_below(u64 state, i64 number, i64 bound) {
    return (i64)__umul64hi(draw_bits(state, number), (u64)bound);
}

struct Shared {
    u64 first, second, share;
    __device__ u64 state(i64 node) const {
        u64 spread = (u64)node * NODE;
        return mix((share != 0 && mix(TURN ^ spread) < share ? second : first) ^ spread);
    }
};

// Whether a * b < c * d in 128 bits.
__device__ inline bool less_product(u64 a, u64 b, u64 c, u64 d) {
    u64 left = __umul64hi(a, b), right = __umul64hi(c, d);
    return left != right ? left < right : a * b < c * d;
}

// ---- searching

// First place in low .. high - 1 of ascending values that exceeds the target, else high.
template <class Values>
__device__ inline i64 first_above(const Values &values, i64 low, i64 high, i64 target) {
    while (low < high) {
        i64 middle = (low + high) >> 1;
        if (values[middle] > target) high = middle;
        else low = middle + 1;
    }
    return low;
}

// The part of ascending starts (parts + 1 of them) that an item lies in.
template <class Values>
__device__ inline i64 part_of(const Values &starts, i64 parts, i64 item) {
    return first_above(starts, 0, parts + 1, item) - 1;
}

// ---- picking: which edges of a segment are sampled (ops/cpu/pick.py)

const i64 LOOK_BACK = 48;

struct Graph {
    Ints indptr;
    const i64 *cumulative;  // null: no weights
    Ints types;
    const i64 *fanouts;  // null: one for all types
    i64 fanout;
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

__device__ inline i64 count_picks(const i64 *cumulative, const Segment &own, bool replace) {
    if (own.low == own.high || own.fanout == 0) return 0;
    if (replace && own.fanout > 0) return count_eligible(cumulative, own, 1) > 0 ? own.fanout : 0;
    i64 eligible = count_eligible(cumulative, own, own.fanout);
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

// Floyd's algorithm; many picks are looked up in a table of twice as many slots, few by a look back.
__device__ inline void pick_plain(const Segment &own, i64 count, u64 state, i64 *out, i64 *table) {
    i64 degree = own.high - own.low;
    for (i64 number = 0; number < count; number++) {
        i64 last = degree - count + number;
        i64 position = own.low + draw_below(state, number, last + 1);
        bool taken = false;
        if (count > LOOK_BACK) {
            taken = !insert(table, 2 * count, position);
            if (taken) insert(table, 2 * count, own.low + last);
        } else {
            for (i64 chosen = 0; chosen < number && !taken; chosen++) taken = out[chosen] == position;
        }
        out[number] = taken ? own.low + last : position;
    }
}

// Distinct edges one after the other by weight; the mass of each is cut out of the rest.
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

// Heapsort: in place, and never slow.
__device__ inline void sift(i64 *places, i64 root, i64 count) {
    for (i64 child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && places[child + 1] > places[child]) child++;
        if (places[child] <= places[root]) return;
        i64 held = places[root];
        places[root] = places[child];
        places[child] = held;
    }
}

__device__ inline void sort(i64 *places, i64 count) {
    for (i64 root = count / 2 - 1; root >= 0; root--) sift(places, root, count);
    for (i64 last = count - 1; last > 0; last--) {
        i64 held = places[0];
        places[0] = places[last];
        places[last] = held;
        sift(places, 0, last);
    }
}

// ---- sample_neighbors: a thread a column

extern "C" __global__ void count_neighbors(
    const void *indptr, i64 indptr_width, const i64 *cumulative, const void *types, i64 types_width, const void *seeds,
    i64 seeds_width, const i64 *fanouts, i64 fanout, i64 replace, i64 columns, i64 *counts) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    Ints nodes = {seeds, seeds_width};
    EACH(column, columns) {
        i64 total = 0;
        Segment own = open_column(graph, nodes[column]);
        while (next_segment(graph, own)) total += count_picks(cumulative, own, replace);
        counts[column] = total;
    }
}

// A column's part of the table begins at twice its offset.
extern "C" __global__ void fill_neighbors(
    const void *indptr, i64 indptr_width, const i64 *cumulative, const void *types, i64 types_width, const void *seeds,
    i64 seeds_width, const i64 *fanouts, i64 fanout, i64 replace, u64 key, i64 columns, const i64 *offsets, i64 *table,
    i64 *positions) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    Ints nodes = {seeds, seeds_width};
    EACH(column, columns) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) continue;
        i64 node = nodes[column];
        u64 state = node_state(key, node);
        Segment own = open_column(graph, node);
        while (next_segment(graph, own)) {
            i64 count = count_picks(cumulative, own, replace);
            u64 segment = fanouts ? typed_state(state, own.type) : state;
            if (count > 0) pick(cumulative, own, count, replace, segment, positions + at, table + 2 * at);
            at += count;
        }
    }
}

// Sort each column's picks and count them by type, each count behind the place of its column in its type's part.
extern "C" __global__ void count_types(
    const void *types, i64 types_width, i64 *positions, const i64 *offsets, i64 columns, const i64 *column_starts,
    i64 kinds, const i64 *bounds, i64 *counts) {
    Ints kind_of = {types, types_width};
    EACH(column, columns) {
        i64 low = offsets[column], high = offsets[column + 1];
        sort(positions + low, high - low);
        i64 local = column - column_starts[part_of(column_starts, kinds, column)];
        for (i64 place = low; place < high; place++) counts[bounds[kind_of[positions[place]]] + local + 1]++;
    }
}

// `before` holds the running sum of the counts over all parts.
extern "C" __global__ void fill_types(
    const void *types, i64 types_width, const i64 *positions, const i64 *offsets, i64 columns,
    const i64 *column_starts, i64 kinds, const i64 *bounds, const i64 *before, i64 *grouped) {
    Ints kind_of = {types, types_width};
    EACH(column, columns) {
        i64 local = column - column_starts[part_of(column_starts, kinds, column)];
        i64 type = -1, at = 0;
        for (i64 place = offsets[column]; place < offsets[column + 1]; place++) {
            i64 own = kind_of[positions[place]];
            if (own != type) at = before[bounds[own] + local];
            type = own;
            grouped[at++] = positions[place];
        }
    }
}

// ---- sample_layer_neighbors: a warp a column

const unsigned WARP = 0xFFFFFFFFu;
const i64 LANES = 32;
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
__device__ inline void pick_jointly(
    const Ints &indices, const i64 *cumulative, const Segment &own, bool events, const Shared &shared, Heap &heap,
    i64 lane) {
    i64 total = cumulative ? cumulative[own.high - 1] - own.before : own.high - own.low;
    u64 start = likely_limit(heap.count, total);
    if (events) start = (start >> (64 - TIME_BITS - 1)) | 1;
    for (;; start = start > MOST >> 3 ? MOST : start << 3) {
        u64 limit = start, per = 1;
        heap.held = 0;
        for (i64 first = own.low; first < own.high; first += LANES) {
            i64 edge = first + lane;
            u64 value = 0, unit = 0;
            bool candidate = false;
            if (edge < own.high) {
                i64 before = !cumulative || edge == own.low ? own.before : cumulative[edge - 1];
                unit = cumulative ? (u64)(cumulative[edge] - before) : 1;
                value = shared.state(indices[edge]);
                // An event comes at value >> 16 at the soonest, for -log2(1 - x) >= x.
                candidate = unit != 0 && (events ? less_product(value >> (64 - TIME_BITS), per, limit, unit)
                                                 : !less_product(limit, unit, value, per));
            }
            for (unsigned left = __ballot_sync(WARP, candidate); left; left &= left - 1) {
                int source = __ffs((int)left) - 1;
                u64 offered = __shfl_sync(WARP, value, source), weight = __shfl_sync(WARP, unit, source);
                if (lane == 0) enter(heap, offered, weight, first + source, events, limit, per);
                limit = __shfl_sync(WARP, limit, 0);
                per = __shfl_sync(WARP, per, 0);
            }
        }
        if (__shfl_sync(WARP, (u64)heap.held, 0) == (u64)heap.count) return;
    }
}

// The values and units of a column lie where its positions do.
extern "C" __global__ void fill_layer_neighbors(
    const void *indptr, i64 indptr_width, const void *indices, i64 indices_width, const i64 *cumulative,
    const void *types, i64 types_width, const void *seeds, i64 seeds_width, const i64 *fanouts, i64 fanout,
    i64 replace, u64 first_key, u64 second_key, u64 share, i64 columns, const i64 *offsets, u64 *values, u64 *units,
    i64 *positions) {
    Graph graph = {{indptr, indptr_width}, cumulative, {types, types_width}, fanouts, fanout};
    Ints nodes = {seeds, seeds_width}, sources = {indices, indices_width};
    Shared shared = {first_key, second_key, share};
    i64 lane = threadIdx.x & (LANES - 1);
    i64 step = (i64)gridDim.x * blockDim.x / LANES;
    for (i64 column = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / LANES; column < columns; column += step) {
        i64 at = offsets[column];
        if (at == offsets[column + 1]) continue;
        Segment own = open_column(graph, nodes[column]);
        while (next_segment(graph, own)) {
            i64 count = count_picks(cumulative, own, replace);
            i64 *places = positions + at;
            bool events = replace && own.fanout > 0;
            if (count > 0 && !events && count == own.high - own.low) {
                for (i64 number = lane; number < count; number += LANES) places[number] = own.low + number;
            } else if (count > 0 && !events && cumulative && (own.fanout < 0 || count < own.fanout)) {
                i64 number = 0;
                for (i64 first = own.low; first < own.high; first += LANES) {
                    i64 edge = first + lane;
                    bool has = edge < own.high &&
                               cumulative[edge] != (edge == own.low ? own.before : cumulative[edge - 1]);
                    unsigned all = __ballot_sync(WARP, has);
                    if (has) places[number + __popc(all & ((1u << lane) - 1))] = edge;
                    number += __popc(all);
                }
            } else if (count > 0) {
                Heap heap = {values + at, units + at, places, count, 0};
                pick_jointly(sources, cumulative, own, events, shared, heap, lane);
                if (lane == 0) sort(places, count);
                __syncwarp();
            }
            at += count;
        }
    }
}

// ---- compact: a thread a node; items are the seeds and then the neighbours

extern "C" __global__ void enter_nodes(
    const void *seeds, const void *neighbors, i64 width, i64 num_seeds, i64 size, u64 *keys, i64 mask, i64 *slots,
    i64 *first) {
    Ints given = {seeds, width}, found = {neighbors, width};
    EACH(item, size) {
        u64 node = (u64)(item < num_seeds ? given[item] : found[item - num_seeds]);
        i64 slot = (i64)mix(node) & mask;
        for (;; slot = (slot + 1) & mask) {
            u64 held = atomicCAS(&keys[slot], MOST, node);
            if (held == MOST || held == node) break;
        }
        slots[item] = slot;
        atomicMin(&first[slot], item);
    }
}

extern "C" __global__ void mark_new(const i64 *slots, const i64 *first, i64 num_seeds, i64 size, i64 *is_new) {
    EACH(edge, size) is_new[edge] = first[slots[num_seeds + edge]] == num_seeds + edge;
}

// `before` holds how many new nodes come before each neighbour; `shifts` makes of that a position among the rows.
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

// ---- gather and copy_rows: 1 to 32 lanes a row

struct alignas(16) Wide {
    u64 low, high;
};

const u64 LINE_BYTES = 128;

// A whole warp begins at a cache line, so that each of its reads takes whole lines; that counts over the bus.
template <class Word>
__device__ inline void copy_words(
    const void *values, Ints index, i64 rows, i64 words, i64 lane_bits, void *out, const i64 *to_rows,
    const i64 *winners) {
    i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x, lanes = 1ll << lane_bits, lane = thread & (lanes - 1);
    for (i64 row = thread >> lane_bits; row < rows; row += ((i64)gridDim.x * blockDim.x) >> lane_bits) {
        i64 target = to_rows ? to_rows[row] : row;
        if (to_rows && (target < 0 || winners[target] != row)) continue;
        const Word *from = (const Word *)values + index[row] * words;
        Word *to = (Word *)out + target * words;
        i64 skew = lanes == LANES ? (i64)((u64)from % LINE_BYTES / sizeof(Word)) : 0;
        for (i64 word = lane - skew; word < words; word += lanes) {
            if (word >= 0) to[word] = from[word];
        }
    }
}

// Without `to_rows` the rows go side by side; else only the last of equal targets is written.
extern "C" __global__ void copy_rows(
    const void *values, const void *index, i64 index_width, i64 rows, i64 words, i64 word_bytes, i64 lane_bits,
    void *out, const i64 *to_rows, const i64 *winners) {
    Ints from = {index, index_width};
    switch (word_bytes) {
        case 16: copy_words<Wide>(values, from, rows, words, lane_bits, out, to_rows, winners); break;
        case 8: copy_words<u64>(values, from, rows, words, lane_bits, out, to_rows, winners); break;
        case 4: copy_words<unsigned>(values, from, rows, words, lane_bits, out, to_rows, winners); break;
        case 2: copy_words<unsigned short>(values, from, rows, words, lane_bits, out, to_rows, winners); break;
        default: copy_words<unsigned char>(values, from, rows, words, lane_bits, out, to_rows, winners);
    }
}

extern "C" __global__ void find_winners(const i64 *to_rows, i64 rows, i64 *winners) {
    EACH(row, rows) {
        if (to_rows[row] >= 0) atomicMax(&winners[to_rows[row]], row);
    }
}

// ---- csc

extern "C" __global__ void count_columns(const void *destinations, i64 width, i64 edges, u64 *counts) {
    Ints ends = {destinations, width};
    EACH(edge, edges) atomicAdd(&counts[ends[edge]], 1ull);
}

extern "C" __global__ void find_falling(const void *indptr, i64 width, i64 columns, i64 *found) {
    Ints starts = {indptr, width};
    EACH(column, columns) {
        if (starts[column + 1] < starts[column]) atomicMin(found, column);
    }
}

extern "C" __global__ void find_unsorted(
    const void *indptr, i64 width, const void *types, i64 types_width, i64 columns, i64 *found) {
    Ints starts = {indptr, width}, kind_of = {types, types_width};
    EACH(column, columns) {
        for (i64 edge = starts[column] + 1; edge < starts[column + 1]; edge++) {
            if (kind_of[edge] >= kind_of[edge - 1]) continue;
            atomicMin(found, column);
            break;
        }
    }
}

// `first` and `after` hold the bounds of the source and of the destination for each edge type.
extern "C" __global__ void find_misjoined(
    const void *indptr, i64 width, const void *indices, i64 indices_width, const void *types, i64 types_width,
    const i64 *first, const i64 *after, i64 columns, i64 *found) {
    Ints starts = {indptr, width}, sources = {indices, indices_width}, kind_of = {types, types_width};
    EACH(column, columns) {
        for (i64 edge = starts[column]; edge < starts[column + 1]; edge++) {
            i64 kind = 2 * kind_of[edge], source = sources[edge];
            if (first[kind] <= source && source < after[kind] && first[kind + 1] <= column && column < after[kind + 1])
                continue;
            atomicMin(found, edge);
            break;
        }
    }
}

extern "C" __global__ void expand_indptr(
    const void *indptr, i64 width, const void *node_ids, i64 ids_width, i64 columns, i64 edges, i64 out_width,
    void *out) {
    Ints starts = {indptr, width}, ids = {node_ids, ids_width};
    EACH(edge, edges) store(out, out_width, edge, ids[part_of(starts, columns, edge)]);
}

extern "C" __global__ void indptr_edge_ids(
    const void *indptr, i64 width, const void *offset, i64 offset_width, i64 columns, i64 edges, i64 out_width,
    void *out) {
    Ints starts = {indptr, width}, offsets = {offset, offset_width};
    EACH(edge, edges) {
        i64 column = part_of(starts, columns, edge);
        store(out, out_width, edge, offsets[column] + edge - starts[column]);
    }
}

// ---- sample_negatives: a thread a row of the result

extern "C" __global__ void sample_negatives(
    const void *pairs, i64 width, i64 count, i64 ratio, i64 bound, u64 key, i64 rows, void *out) {
    Ints given = {pairs, width};
    EACH(row, rows) {
        i64 place = row - count, pair = place < 0 ? row : place / ratio;
        i64 destination = place < 0 ? given[2 * pair + 1] : draw_below(node_state(key, place), 0, bound);
        store(out, width, 2 * row, given[2 * pair]);
        store(out, width, 2 * row + 1, destination);
    }
}

// ---- weights: a thread a column

extern "C" __global__ void cumulate_weights(
    const void *indptr, i64 width, const void *weights, i64 weight_bytes, i64 columns, i64 *out) {
    Ints starts = {indptr, width};
    EACH(column, columns) {
        i64 low = starts[column], high = starts[column + 1], total = 0;
        double largest = 0;
        for (int writing = 0; writing < 2; writing++) {
            for (i64 edge = low; edge < high; edge++) {
                double weight = weight_bytes == 8   ? ((const double *)weights)[edge]
                                : weight_bytes == 4 ? (double)((const float *)weights)[edge]
                                                    : (double)((const unsigned char *)weights)[edge];
                if (!writing) {
                    largest = weight > largest ? weight : largest;
                    continue;
                }
                // A positive value is rounded down as it is cut to an integer.
                i64 units = weight > 0 ? (i64)(weight / largest * 2147483648.0 + 0.5) : 0;
                total += weight > 0 && units < 1 ? 1 : units;
                out[edge] = total;
            }
        }
    }
}

// ---- match_pairs

struct Pairs {
    const i64 *ends;
    u64 mask;
    __device__ u64 slot(i64 source, i64 destination) const { return mix(mix((u64)source) + (u64)destination) & mask; }
    __device__ bool is(u64 pair, i64 source, i64 destination) const {
        return ends[2 * pair] == source && ends[2 * pair + 1] == destination;
    }
};

// Which of equal pairs gets the slot makes no difference.
extern "C" __global__ void enter_pairs(const i64 *ends, i64 size, u64 *table, u64 mask) {
    Pairs pairs = {ends, mask};
    EACH(pair, size) {
        i64 source = ends[2 * pair], destination = ends[2 * pair + 1];
        for (u64 slot = pairs.slot(source, destination);; slot = (slot + 1) & mask) {
            u64 held = atomicCAS(&table[slot], MOST, (u64)pair);
            if (held == MOST || pairs.is(held, source, destination)) break;
        }
    }
}

extern "C" __global__ void match_pairs(
    const void *indptr, i64 width, const void *indices, i64 indices_width, const void *rows, i64 rows_width,
    const void *destinations, i64 destinations_width, const i64 *ends, const u64 *table, u64 mask, i64 columns,
    i64 edges, unsigned char *out) {
    Ints starts = {indptr, width}, from = {indices, indices_width}, to = {destinations, destinations_width};
    Ints ids = {rows, rows_width};
    Pairs pairs = {ends, mask};
    EACH(edge, edges) {
        i64 source = rows ? ids[from[edge]] : from[edge], destination = to[part_of(starts, columns, edge)];
        u64 slot = pairs.slot(source, destination);
        while (table[slot] != MOST && !pairs.is(table[slot], source, destination)) slot = (slot + 1) & mask;
        out[edge] = table[slot] != MOST;
    }
}
