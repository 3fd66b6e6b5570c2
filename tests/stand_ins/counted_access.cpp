// What g++ calls at each load and store of code that it compiles with -fsanitize=thread: counts those of a kernel's
// arguments. What a block reads of one sector counts once, as if its cache held it until the block ends. Sectors of one
// line take one request.

#include <algorithm>
#include <unordered_set>
#include <vector>

typedef unsigned long long u64;

// Thread, block, and the threads of a block, where the emulation has them.
extern "C" const unsigned *const counted_place[3];

static const u64 SECTOR_BYTES = 32, LINE_BYTES = 128;

struct Argument {
    u64 start, end;
};
static std::vector<Argument> arguments;
static std::vector<u64> moved, requested, accesses;
static std::unordered_set<u64> sectors, lines;
static u64 block;
// Also false while the process ends.
static bool counts;

static void touch(const void *address, u64 bytes) {
    if (!counts) return;
    u64 at = (u64)address;
    for (size_t number = 0; number < arguments.size(); number++) {
        if (at < arguments[number].start || at >= arguments[number].end) continue;
        u64 own = *counted_place[1], thread = own * *counted_place[2] + *counted_place[0];
        if (accesses.size() <= thread) accesses.resize(thread + 1);
        accesses[thread]++;
        if (own != block) sectors.clear(), lines.clear();
        block = own;
        for (u64 sector = at / SECTOR_BYTES; sector <= (at + bytes - 1) / SECTOR_BYTES; sector++) {
            if (sectors.insert(sector).second) moved[number] += SECTOR_BYTES;
            if (lines.insert(sector / (LINE_BYTES / SECTOR_BYTES)).second) requested[number]++;
        }
        return;
    }
}

extern "C" {
void counted_begin(u64 count, const u64 *starts, const u64 *ends) {
    arguments.clear();
    for (u64 number = 0; number < count; number++) arguments.push_back({starts[number], ends[number]});
    moved.assign(count, 0), requested.assign(count, 0);
    accesses.clear(), sectors.clear(), lines.clear();
    block = 0;
    counts = true;
}

// Writes the bytes of each argument, and its requests; then the accesses of all threads, and of the one with the most.
void counted_end(u64 *out) {
    counts = false;
    u64 all = 0, most = 0;
    for (u64 own : accesses) all += own, most = std::max(most, own);
    out = std::copy(requested.begin(), requested.end(), std::copy(moved.begin(), moved.end(), out));
    out[0] = all, out[1] = most;
}

#define HOOKS(bytes)                                                               \
    void __tsan_read##bytes(void *at) { touch(at, bytes); }                        \
    void __tsan_write##bytes(void *at) { touch(at, bytes); }                       \
    void __tsan_unaligned_read##bytes(void *at) { touch(at, bytes); }              \
    void __tsan_unaligned_write##bytes(void *at) { touch(at, bytes); }             \
    void __tsan_volatile_read##bytes(void *at) { touch(at, bytes); }               \
    void __tsan_volatile_write##bytes(void *at) { touch(at, bytes); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *at, u64 bytes) { touch(at, bytes); }
void __tsan_write_range(void *at, u64 bytes) { touch(at, bytes); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void *) {}
void __tsan_vptr_update(void *, void *) {}
}
