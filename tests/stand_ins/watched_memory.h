// Watches each load and store of the device code, which is compiled with -fsanitize=thread: that calls the functions at
// the end of this file. A kernel may touch its arguments, its own stack and what lies in this library, such as the memory
// that a block shares. Its arguments it may only read where they are const, and where somebody wrote before.
//
// Two accesses of different threads, one of them a write, need a meeting of their warp or block between them: an exchange
// of values orders no accesses to memory. What writes the value that is there already does no harm, and atomics none to
// each other. What a block shares is not cleared for it.

#include <cstring>
#include <link.h>

#define UNWATCHED __attribute__((no_sanitize("thread")))

namespace watched {

typedef unsigned long long Address;

struct Range {
    unsigned long long start, end, width, writable;
    unsigned char *written;  // for each byte whether somebody wrote it; null: all were
};
struct Access {
    unsigned thread, block, warp_meetings, meetings;  // threads count from 1, of all blocks
    bool atomic;
};
struct Cell {
    Access write, read, other_read;
};
static const int MOST_RANGES = 40;
static Range ranges[MOST_RANGES];
static Cell *cells[MOST_RANGES];
static int range_count;
static bool watching;
static Access current;
static char fault[400];
static unsigned char *stack_start, *stack_end;
// A write where another thread wrote: whether it changes the value is seen afterwards.
static unsigned char *doubtful, before_write[16];
static size_t doubtful_size;

static Range image;  // this library

template <class Value>
static UNWATCHED bool lies_in(const unsigned char *at, const Value &value) {
    return (const unsigned char *)&value <= at && at < (const unsigned char *)(&value + 1);
}

// What this library holds besides the memory that blocks share.
static UNWATCHED bool is_of_emulation(const unsigned char *at) {
    return lies_in(at, gridDim) || lies_in(at, blockDim) || lies_in(at, blockIdx) || lies_in(at, threadIdx)
        || lies_in(at, body);
}

static UNWATCHED int find_image(dl_phdr_info *info, size_t, void *) {
    Range found = {~0ull, 0, 4, 1, nullptr};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        Address start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = start + info->dlpi_phdr[i].p_memsz;
        found.start = start < found.start ? start : found.start;
        found.end = end > found.end ? end : found.end;
    }
    bool is_own = found.start <= (Address)&image && (Address)&image < found.end;
    if (is_own) image = found;
    return is_own;
}

// End the kernel, before it does what it must not do.
static UNWATCHED void report(const char *what, const void *at, size_t size) {
    int argument = -1;
    for (int i = 0; i + 1 < range_count; i++) {
        if ((Address)at >= ranges[i].start && (Address)at < ranges[i].end) argument = i;
    }
    unsigned long long offset = argument < 0 ? 0 : (Address)at - ranges[argument].start;
    snprintf(
        fault, sizeof fault, "thread %u %s: %zu bytes at %llu of tensor %d", current.thread - 1, what, size, offset,
        argument);
    failure = fault;
    doubtful = nullptr;
    _longjmp(scheduler_place, 1);
}

static UNWATCHED bool is_ordered(const Access &before) {
    if (!before.thread || before.thread == current.thread) return true;
    if (before.block != current.block) return false;
    if (before.meetings < current.meetings) return true;
    bool one_warp = (before.thread - 1) / 32 == (current.thread - 1) / 32;
    return one_warp && before.warp_meetings < current.warp_meetings;
}

static UNWATCHED void settle() {
    bool changed = doubtful && memcmp(doubtful, before_write, doubtful_size);
    if (changed) report("writes what another one writes, with nothing between them", doubtful, doubtful_size);
    doubtful = nullptr;
}

static UNWATCHED void check_cell(Cell &cell, unsigned char *at, size_t size, bool reads, bool writes, bool shared) {
    if (shared && cell.write.block != current.block) cell.write = {};
    // A GPU does not clear it between blocks.
    if (shared && reads && !cell.write.thread && !is_of_emulation(at)) {
        report("reads unwritten memory, shared by its block", at, size);
    }
    if (shared && cell.read.block != current.block) cell.read = {};
    if (shared && cell.other_read.block != current.block) cell.other_read = {};
    bool clash = !is_ordered(cell.write) && !(current.atomic && cell.write.atomic);
    if (!writes) {
        if (clash) report("reads what another one writes, with nothing between them", at, size);
        if (is_ordered(cell.read)) cell.read = current;
        else cell.other_read = current;
        return;
    }
    for (const Access &read : {cell.read, cell.other_read}) {
        if (is_ordered(read) || (current.atomic && read.atomic)) continue;
        report("writes what another one reads, with nothing between them", at, size);
    }
    if (clash && !doubtful && size <= sizeof before_write) {
        memcpy(before_write, at, size);
        doubtful = at;
        doubtful_size = size;
    }
    cell.write = current;
}

static UNWATCHED void touch(void *address, size_t size, bool reads, bool writes, bool atomic = false) {
    unsigned char *at = (unsigned char *)address;
    if (at >= stack_start && at + size <= stack_end) return;
    settle();
    if ((Address)at % size) return report("touches memory between two values", at, size);
    current.atomic = atomic;
    int found = -1;
    for (int i = 0; i < range_count; i++) {
        bool inside = (Address)at >= ranges[i].start && (Address)at + size <= ranges[i].end;
        if (inside && (found < 0 || ranges[i].writable)) found = i;
    }
    if (found < 0) return report(writes ? "writes outside" : "reads outside", at, size);
    Range &own = ranges[found];
    if (writes && !own.writable) return report("writes through const", at, size);
    bool shared = found == range_count - 1;
    unsigned long long offset = (Address)at - own.start;
    for (size_t byte = 0; byte < size && own.written; byte++) {
        if (reads && !own.written[offset + byte]) return report("reads unwritten memory", at, size);
        if (writes) own.written[offset + byte] = 1;
    }
    for (unsigned long long cell = offset / own.width; cell <= (offset + size - 1) / own.width; cell++) {
        check_cell(cells[found][cell], at, size, reads, writes, shared);
    }
}

extern "C" UNWATCHED void watch(const Range *given, int count) {
    for (int i = 0; i < range_count; i++) free(cells[i]);
    range_count = count + 1;
    memcpy(ranges, given, count * sizeof(Range));
    // The last one is this library, where a block's shared memory lies.
    if (!image.start) dl_iterate_phdr(find_image, nullptr);
    ranges[count] = image;
    for (int i = 0; i <= count; i++) {
        cells[i] = (Cell *)calloc((ranges[i].end - ranges[i].start) / ranges[i].width + 1, sizeof(Cell));
    }
}

// While this lives, nothing is watched: the emulation does its own work.
struct Unwatched {
    bool before;
    UNWATCHED Unwatched() : before(watching) {
        watching = false;
        settle();
    }
    UNWATCHED ~Unwatched() { watching = before; }
};

#define HOOK(name, size, reads, writes)                        \
    extern "C" UNWATCHED void __tsan_##name(void *address) {   \
        if (!watching) return;                                 \
        watching = false;                                      \
        touch(address, size, reads, writes);                   \
        watching = true;                                       \
    }
#define HOOKS(size)                                  \
    HOOK(read##size, size, true, false)              \
    HOOK(write##size, size, false, true)             \
    HOOK(unaligned_read##size, size, true, false)    \
    HOOK(unaligned_write##size, size, false, true)   \
    HOOK(read_write##size, size, true, true)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
extern "C" UNWATCHED void __tsan_read_range(void *address, size_t size) {
    if (!watching) return;
    watching = false;
    touch(address, size, true, false);
    watching = true;
}
extern "C" UNWATCHED void __tsan_write_range(void *address, size_t size) {
    if (!watching) return;
    watching = false;
    touch(address, size, false, true);
    watching = true;
}
extern "C" UNWATCHED void __tsan_init() {}
extern "C" UNWATCHED void __tsan_func_entry(void *) {}
extern "C" UNWATCHED void __tsan_func_exit() {}
extern "C" UNWATCHED void __tsan_vptr_update(void **, void *) {}
extern "C" UNWATCHED void __tsan_vptr_read(void **) {}

}  // namespace watched
