// What the device code needs of CUDA, on one thread of the CPU. Each CUDA thread is a fiber: they run one after the other,
// in an order that the caller chooses, and wait for each other only where a warp exchanges values or a block meets.

#include <bit>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <tuple>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __launch_bounds__(...)
// Blocks run one after the other.
#define __shared__ static
// Small, so that the graphs of tests have columns for each kind of team.
#ifndef HUB_EDGES
#define HUB_EDGES 128
#endif
// Larger blocks are split, since waiting for many fibers takes long.
#ifndef MOST_THREADS
#define MOST_THREADS 64
#endif

struct Dimensions {
    unsigned x;
};
static Dimensions gridDim, blockDim, blockIdx, threadIdx;

static const unsigned THREADS_PER_WARP = 32;
static const size_t STACK_BYTES = 1 << 16;

struct Fiber {
    ucontext_t context;
    jmp_buf place;
    std::vector<char> stack;
    bool begun, done;
    unsigned long long offered;
    long exchanges;
    unsigned meetings;  // of its warp, which alone order accesses to memory
    int line;  // of the exchange that it came to
};
static std::vector<Fiber> fibers;
static jmp_buf scheduler_place;
static std::function<void()> body;
static const char *failure;
// Threads of the block that wait for the others, how often all have met, and threads that are done.
static unsigned waiting, meetings, finished;
static int meeting_line;

#ifdef WATCHED
#include "watched_memory.h"
#define UNSEEN watched::Unwatched unseen
#define TOUCH(at) watched::touch(at, sizeof(*(at)), true, true, true)
#else
#define UNSEEN
#define TOUCH(at)
#endif

static void run_fiber() {
#ifdef WATCHED
    watched::watching = true;
#endif
    body();
    UNSEEN;
    fibers[threadIdx.x].done = true;
    finished++;
    _longjmp(scheduler_place, 1);
}

// Contexts are only for the first entry: each of their switches asks the system for the signals that are blocked.
static void yield() {
    unsigned own = threadIdx.x;
    if (!_setjmp(fibers[own].place)) _longjmp(scheduler_place, 1);
    threadIdx.x = own;
}

static void enter(unsigned thread) {
    threadIdx.x = thread;
    Fiber &fiber = fibers[thread];
#ifdef WATCHED
    watched::stack_start = (unsigned char *)fiber.stack.data();
    watched::stack_end = watched::stack_start + STACK_BYTES;
    unsigned number = blockIdx.x * blockDim.x + thread + 1;
    watched::current = {number, blockIdx.x, fiber.meetings, meetings, false};
#endif
    if (_setjmp(scheduler_place)) return;
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    setcontext(&fiber.context);
}

// Offer a value to the warp; `read` looks at what all lanes have offered.
template <class Read>
static auto exchange(int line, unsigned mask, unsigned long long value, Read read) {
    UNSEEN;
    unsigned own = threadIdx.x, first = own / THREADS_PER_WARP * THREADS_PER_WARP;
    fibers[own].offered = value;
    fibers[own].exchanges++;
    fibers[own].line = line;
    yield();
    bool together = mask == 0xFFFFFFFFu;
    for (unsigned lane = first; lane < first + THREADS_PER_WARP; lane++) {
        together = together && lane < fibers.size() && fibers[lane].exchanges == fibers[own].exchanges;
        together = together && fibers[lane].line == line;
    }
    if (!together) {
        failure = "the lanes of a warp came to different exchanges";
        yield();
    }
    auto result = read(first);
    yield();
    return result;
}

static unsigned ballot_at(int line, unsigned mask, bool vote) {
    return exchange(line, mask, vote, [](unsigned first) {
        unsigned votes = 0;
        for (unsigned lane = 0; lane < THREADS_PER_WARP; lane++) votes |= (unsigned)fibers[first + lane].offered << lane;
        return votes;
    });
}

static unsigned long long shuffle_at(int line, unsigned mask, unsigned long long value, int source) {
    return exchange(line, mask, value, [=](unsigned first) { return fibers[first + source].offered; });
}

static void meet_in_warp_at(int line) {
    UNSEEN;
    fibers[threadIdx.x].meetings++;
    exchange(line, 0xFFFFFFFFu, 0, [](unsigned) { return 0; });
}

static void meet_in_block_at(int line) {
    UNSEEN;
    unsigned before = meetings;
    if (waiting && line != meeting_line) failure = "the threads of a block came to different meetings";
    meeting_line = line;
    if (++waiting == blockDim.x) {
        waiting = 0;
        meetings++;
    }
    while (meetings == before && !failure) {
        if (finished) failure = "a thread ended while others of its block wait for it";
        yield();
    }
#ifdef WATCHED
    watched::current.meetings = meetings;
#endif
}

// Each place of the device code, which is one text, has its line.
#define __ballot_sync(mask, vote) ballot_at(__LINE__, mask, vote)
#define __shfl_sync(mask, value, source) shuffle_at(__LINE__, mask, value, source)
#define __syncwarp() meet_in_warp_at(__LINE__)
#define __syncthreads() meet_in_block_at(__LINE__)

static int __ffs(int value) { return __builtin_ffs(value); }
static float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
static unsigned __float_as_uint(float number) { return std::bit_cast<unsigned>(number); }
static int __popc(unsigned value) { return __builtin_popcount(value); }

static unsigned long long __umul64hi(unsigned long long left, unsigned long long right) {
    return (unsigned long long)((unsigned __int128)left * right >> 64);
}

template <class Value>
static Value atomicMin(Value *at, Value value) {
    UNSEEN;
    TOUCH(at);
    Value old = *at;
    if (value < old) *at = value;
    return old;
}

template <class Value>
static Value atomicMax(Value *at, Value value) {
    UNSEEN;
    TOUCH(at);
    Value old = *at;
    if (value > old) *at = value;
    return old;
}

template <class Value>
static Value atomicAdd(Value *at, Value value) {
    UNSEEN;
    TOUCH(at);
    Value old = *at;
    *at += value;
    return old;
}

template <class Value>
static Value atomicCAS(Value *at, Value expected, Value value) {
    UNSEEN;
    TOUCH(at);
    Value old = *at;
    if (old == expected) *at = value;
    return old;
}

// The item that comes at a step: forwards, backwards, or in strides.
static unsigned at_step(unsigned step, unsigned count, int order) {
    if (order == 0) return step;
    if (order == 1) return count - 1 - step;
    unsigned half = (count + 1) / 2;
    return step < half ? 2 * step : 2 * (step - half) + 1;
}

static void run_block(int order) {
    waiting = meetings = finished = 0;
    for (unsigned thread = 0; thread < blockDim.x; thread++) {
        Fiber &fiber = fibers[thread];
        fiber.begun = fiber.done = false;
        fiber.exchanges = 0;
        fiber.meetings = 0;
        fiber.stack.resize(STACK_BYTES);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = STACK_BYTES;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, run_fiber, 0);
    }
    for (bool left = true; left && !failure;) {
        left = false;
        for (unsigned step = 0; step < blockDim.x && !failure; step++) {
            unsigned thread = at_step(step, blockDim.x, order);
            if (fibers[thread].done) continue;
            enter(thread);
            left = left || !fibers[thread].done;
        }
    }
}

static const char *emulate(unsigned blocks, unsigned threads, int order, std::function<void()> kernel) {
    UNSEEN;
    for (; threads > MOST_THREADS; threads /= 2) blocks *= 2;
    body = std::move(kernel);
    failure = nullptr;
    gridDim.x = blocks;
    blockDim.x = threads;
    fibers.resize(threads);
    for (unsigned step = 0; step < blocks && !failure; step++) {
        blockIdx.x = at_step(step, blocks, order);
        run_block(order);
    }
    return failure;
}

template <class Kind>
static Kind take(const unsigned long long *&given) {
    const void *own = given;
    given += sizeof(Kind) / sizeof(*given);
    return *(const Kind *)own;
}

// Run a kernel with arguments as a driver takes them, one behind the other.
template <class... Kinds>
static const char *run(
    void (*kernel)(Kinds...), unsigned blocks, unsigned threads, int order, const unsigned long long *given) {
    return emulate(blocks, threads, order, [=] {
        const unsigned long long *next = given;
        std::apply(kernel, std::tuple<Kinds...>{take<Kinds>(next)...});
    });
}

#define CALLABLE(kernel) \
    extern "C" const char *run_##kernel( \
        unsigned blocks, unsigned threads, int order, const unsigned long long *given) { \
        return run(kernel, blocks, threads, order, given); \
    }
