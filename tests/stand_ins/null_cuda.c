/* A CUDA that does nothing, in place of libcudart and libcuda: what is left is the CPU's own work.
 *
 * Each call succeeds at once. Memory of the one device is memory of the process, kernels don't run, and streams and
 * events have always passed. Copies up to 64 KiB are made, so that small tables can be read back; a kernel writes only
 * the numbers that `null_cuda_write` gives it. `null_cuda.py` adds all other functions that torch's libraries need.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <driver_types.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define COPIED ((size_t)64 << 10)
#define DEVICE_BYTES ((size_t)80 << 30)
#define MOST 256

/* In the order of `COUNTS` in null_cuda.py. */
enum { TORCH_LAUNCHES, OWN_LAUNCHES, COPIES, EVENTS, ASKED, STREAM_WAITS, WAITS, GIL, KINDS };
uint64_t null_cuda_counts[KINDS];
static int count(int kind) { return __atomic_fetch_add(&null_cuda_counts[kind], 1, __ATOMIC_RELAXED), 0; }

/* Memory: addresses of the device are handed out once; pages that nobody touches take no memory. */

static char *device, *next_block;
static struct {
    char *start, *end;
} locked[MOST];

int cudaMalloc(void **out, size_t size) {
    if (!device) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        device = next_block = mmap(NULL, DEVICE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    }
    size = (size + 511) & ~(size_t)511;
    *out = __atomic_fetch_add(&next_block, size, __ATOMIC_RELAXED);
    return (char *)*out + size > device + DEVICE_BYTES ? cudaErrorMemoryAllocation : 0;
}
int cudaMemGetInfo(size_t *left, size_t *total) { return *left = *total = DEVICE_BYTES, 0; }

int cudaHostRegister(void *start, size_t size, unsigned flags) {
    for (int i = 0; i < MOST; i++)
        if (!locked[i].start) return locked[i].start = start, locked[i].end = locked[i].start + size, (int)(flags & 0);
    return cudaErrorMemoryAllocation;
}
int cudaHostUnregister(void *start) {
    for (int i = 0; i < MOST; i++)
        if (locked[i].start == start) locked[i].start = NULL;
    return 0;
}
int cudaHostAlloc(void **out, size_t size, unsigned flags) {
    return posix_memalign(out, 4096, size + 1) ? cudaErrorMemoryAllocation : cudaHostRegister(*out, size, flags);
}
int cudaFreeHost(void *block) { return cudaHostUnregister(block), free(block), 0; }
int cudaHostGetDevicePointer(void **out, void *host) { return *out = host, 0; }

static int is_there(const void *place) {
    return device && device <= (char *)place && (char *)place < device + DEVICE_BYTES;
}
static int is_locked(const void *place) {
    for (int i = 0; i < MOST; i++)
        if (locked[i].start && locked[i].start <= (char *)place && (char *)place < locked[i].end) return 1;
    return 0;
}
int cudaPointerGetAttributes(struct cudaPointerAttributes *out, void *place) {
    int there = is_there(place), pinned = !there && is_locked(place);
    memset(out, 0, sizeof *out);
    out->type = there ? cudaMemoryTypeDevice : pinned ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    out->devicePointer = there || pinned ? place : NULL;
    out->hostPointer = there ? NULL : place;
    return 0;
}
int cudaMemcpyAsync(void *to, const void *from, size_t size) {
    int there = is_there(to), inside = there && is_there(from);
    if (!inside && (size <= COPIED || !is_locked(there ? from : to))) memcpy(to, from, size);
    return count(COPIES);
}

/* Streams and events. */

static int handle(void **out) {
    static uintptr_t next = 1 << 12;
    return *out = (void *)__atomic_add_fetch(&next, 64, __ATOMIC_RELAXED), 0;
}
int cudaStreamCreateWithPriority(void **out) { return handle(out); }
int cudaStreamCreateWithFlags(void **out) { return handle(out); }
int cudaDeviceGetStreamPriorityRange(int *least, int *most) { return *least = 0, *most = -5, 0; }
int cudaStreamIsCapturing(void *stream, int *out) { return (void)stream, *out = 0; }
int cudaStreamGetCaptureInfo(void *stream, int *out) { return (void)stream, *out = 0; }
int cudaStreamGetCaptureInfo_v2(void *stream, int *out) { return (void)stream, *out = 0; }
int cudaStreamGetCaptureInfo_v3(void *stream, int *out) { return (void)stream, *out = 0; }
int cudaStreamSynchronize(void) { return count(WAITS); }
int cudaDeviceSynchronize(void) { return count(WAITS); }
int cudaEventSynchronize(void) { return count(WAITS); }
int cudaStreamWaitEvent(void) { return count(STREAM_WAITS); }
int cudaEventCreateWithFlags(void **out) { return handle(out); }
int cudaEventCreate(void **out) { return handle(out); }
int cudaEventRecord(void) { return count(EVENTS); }
int cudaEventRecordWithFlags(void) { return count(EVENTS); }
int cudaEventQuery(void) { return count(ASKED); }

/* Kernels. */

static char kernels[MOST][64];
static struct {
    int kernel, word, offset, turns;
    int64_t values[16];
} writes[MOST];
static uint64_t launches[MOST];

int cuModuleGetFunction(void **out, void *module, const char *name) {
    int place = 1; /* a kernel's address is its place in the table */
    (void)module;
    while (kernels[place][0] && strcmp(kernels[place], name)) place++;
    snprintf(kernels[place], sizeof *kernels, "%s", name);
    return *out = (void *)(uintptr_t)place, 0;
}

/* At each launch of a kernel, writes one of 16 numbers in turn, behind the address in a word of its arguments. */
void null_cuda_write(const char *name, int word, int offset, const int64_t *values, int turns) {
    void *kernel;
    int place = 0;
    while (writes[place].turns) place++;
    cuModuleGetFunction(&kernel, NULL, name);
    writes[place].kernel = (int)(uintptr_t)kernel, writes[place].word = word, writes[place].offset = offset;
    memcpy(writes[place].values, values, 8 * (size_t)turns);
    writes[place].turns = turns;
}

int cuLaunchKernel(uintptr_t kernel, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y, unsigned z,
                   unsigned shared, void *stream, void **params, void **extra) {
    const uint64_t *words = extra[1], turn = launches[kernel]++;
    (void)gx, (void)gy, (void)gz, (void)x, (void)y, (void)z, (void)shared, (void)stream, (void)params;
    for (int i = 0; writes[i].turns; i++)
        if (writes[i].kernel == (int)kernel && words[writes[i].word])
            *(int64_t *)(words[writes[i].word] + (uint64_t)writes[i].offset) = writes[i].values[turn % (uint64_t)writes[i].turns];
    return count(OWN_LAUNCHES);
}
int cudaLaunchKernel(void) { return count(TORCH_LAUNCHES); }
int __cudaLaunchKernel(void) { return count(TORCH_LAUNCHES); }
int cudaLaunchKernelExC(void) { return count(TORCH_LAUNCHES); }

static __thread struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} pushed;
int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.stream = stream;
    return 0;
}
int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void **stream) {
    return *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared, *stream = pushed.stream, 0;
}
void **__cudaRegisterFatBinary(void) { return calloc(1, sizeof(void *)); }
int __cudaGetKernel(void **out, void *function) { return *out = function, 0; }
char __cudaInitModule(void) { return 1; }
int cudaFuncGetAttributes(struct cudaFuncAttributes *out) {
    memset(out, 0, sizeof *out);
    return out->maxThreadsPerBlock = 1024, out->binaryVersion = out->ptxVersion = 90, 0;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out) { return *out = 8, 0; }

/* The device. */

int cudaGetDeviceCount(int *out) { return *out = 1, 0; }
int cudaGetDevice(int *out) { return *out = 0; }
int cudaDriverGetVersion(int *out) { return *out = VERSION, 0; }
int cudaRuntimeGetVersion(int *out) { return *out = VERSION, 0; }
int cudaDeviceGetAttribute(int *out, int attribute) {
    /* Threads of a block, blocks of a grid, of a warp, multiprocessors, the compute capability; others are 1. */
    static const int known[128] = {[1] = 1024, [5] = 1 << 30, [10] = 32, [16] = 132, [39] = 2048, [75] = 9};
    return *out = attribute == 76 ? 0 : known[attribute] ? known[attribute] : 1, 0;
}
int cudaGetDeviceProperties(struct cudaDeviceProp *out) {
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "no GPU");
    out->totalGlobalMem = DEVICE_BYTES, out->major = 9, out->multiProcessorCount = 132, out->warpSize = 32;
    out->maxThreadsPerBlock = 1024, out->maxThreadsPerMultiProcessor = 2048, out->maxBlocksPerMultiProcessor = 32;
    out->maxGridSize[0] = out->maxGridSize[1] = out->maxGridSize[2] = 1 << 30;
    out->maxThreadsDim[0] = out->maxThreadsDim[1] = 1024, out->maxThreadsDim[2] = 64;
    out->sharedMemPerBlock = out->sharedMemPerMultiprocessor = 48 << 10;
    return 0;
}
int cudaGetDeviceProperties_v2(struct cudaDeviceProp *out) { return cudaGetDeviceProperties(out); }
const char *cudaGetErrorString(int status) { return status ? "an error without a GPU" : "no error"; }
const char *cudaGetErrorName(int status) { return cudaGetErrorString(status); }
int cuGetErrorName(int status, const char **out) { return *out = cudaGetErrorString(status), 0; }
int cuGetErrorString(int status, const char **out) { return *out = cudaGetErrorString(status), 0; }
int cuDevicePrimaryCtxGetState(int ordinal, unsigned *flags, int *active) {
    return (void)ordinal, *flags = 0, *active = 1, 0;
}
int cuCtxGetCurrent(void **out) { return *out = &null_cuda_counts, 0; }

static int nothing(void) { return 0; }
int cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version, uint64_t flags, int *found) {
    (void)version, (void)flags;
    *out = dlsym(RTLD_DEFAULT, name);
    if (!*out) *out = (void *)nothing;
    return found ? *found = 0 : 0;
}
int cudaGetDriverEntryPoint(const char *name, void **out, uint64_t flags, int *found) {
    return cudaGetDriverEntryPointByVersion(name, out, 0, flags, found);
}
int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *found) {
    return cudaGetDriverEntryPointByVersion(name, out, (unsigned)version, flags, found);
}

/* Compiled modules release the interpreter's lock by this function. A static interpreter doesn't call this one. */
void *PyEval_SaveThread(void) {
    static void *(*own)(void);
    if (!own) own = (void *(*)(void))dlsym(RTLD_NEXT, "PyEval_SaveThread");
    count(GIL);
    return own();
}
