// 1 to 32 lanes per row. They read adjacent words of codes, exchange them, and write adjacent numbers.

#include "arrays.cuh"

const u64 LINE_BYTES = 128;

// With CuPy's option -ftz=true, operators of C++ flush subnormal numbers to zero. These instructions don't: they round as
// the CPU does, and the compiler never fuses them.
#ifdef __CUDACC__
__device__ inline float times(float left, float right) {
    float result;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(left), "f"(right));
    return result;
}
__device__ inline float plus(float left, float right) {
    float result;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(left), "f"(right));
    return result;
}
#else
inline float times(float left, float right) { return left * right; }
inline float plus(float left, float right) { return left + right; }
#endif

// Without `scale` and `offset`, rows of 4 or 8 bits end with their own, float16 or float32.
struct Codes {
    const void *data;
    i64 row_bytes;
    i64 columns;
    i64 bits;
    i64 bfloat16;
    const float *scale;
    const float *offset;
};

// A float16 as float32. The product is exact, also for subnormal numbers.
__device__ inline float float_of_half(unsigned half) {
    unsigned rest = (half & 0x7FFF) << 13, sign = (half & 0x8000) << 16;
    unsigned number = __float_as_uint(times(__uint_as_float(rest), 0x1p112f));
    return __uint_as_float(number | sign | (rest >= 0x7C00 << 13 ? 0x7F800000 : 0));
}

// A float32 rounded to bfloat16, its upper half; ties to even.
__device__ inline unsigned rounded_to_bfloat16(unsigned number) {
    bool is_nan = (number & 0x7FFFFFFF) > 0x7F800000;
    return is_nan ? 0xFFFF : (number + 0x7FFF + (number >> 16 & 1)) >> 16;
}

// A full warp begins at a cache line, so that it reads full lines, which matters over the bus. Without `index`, all rows
// are decoded in order; with `to_rows`, each is written there. `out` has float32 or bfloat16.
extern "C" __global__ void decode_rows(
    Codes codes, Ints index, i64 rows, i64 word_bytes, i64 lane_bits, OutInts out, const i64 *to_rows) {
    i64 lanes = 1ll << lane_bits, own = lane() & (lanes - 1);
    i64 code_shift = __ffs((int)codes.bits) - 1, word_shift = __ffs((int)word_bytes) + 2 - code_shift;
    i64 per_word = 1ll << word_shift;
    bool has_factors = codes.bits < 16 && !codes.scale, is_short = codes.bits == 4;
    i64 words = (codes.row_bytes - (has_factors ? codes.bits : 0)) / word_bytes;
    // All lanes of a warp do the same number of rounds, because they exchange words.
    for (i64 item = (i64)blockIdx.x * blockDim.x + threadIdx.x; (item - lane()) >> lane_bits < rows;
         item += (i64)gridDim.x * blockDim.x) {
        bool is_row = item >> lane_bits < rows;
        i64 row = is_row ? item >> lane_bits : 0, target = (to_rows ? to_rows[row] : row) * codes.columns;
        Ints from = {(const char *)codes.data + (index.data ? index[row] : row) * codes.row_bytes, word_bytes};
        float scale = 0, offset = 0;
        if (has_factors) {
            u64 factors = 0, word = 0, mask = (1ull << 8 * word_bytes) - 1;
            for (; word * word_bytes < codes.bits; word++) factors |= (from[words + word] & mask) << 8 * word * word_bytes;
            scale = is_short ? float_of_half(factors & 0xFFFF) : __uint_as_float((unsigned)factors);
            offset = is_short ? float_of_half(factors >> 16) : __uint_as_float((unsigned)(factors >> 32));
        }
        i64 skew = lanes == WARP_SIZE ? (i64)((u64)from.data % LINE_BYTES) / word_bytes : 0;
        for (i64 first = -skew; first < words; first += lanes) {
            unsigned word = first + own >= 0 && first + own < words ? (unsigned)from[first + own] : 0;
            for (unsigned part = own; part < lanes * per_word; part += lanes) {
                int reader = lane() - own + (part >> word_shift);
                unsigned code = (unsigned)__shfl_sync(ALL_LANES, word, reader);
                code = code >> ((part & (per_word - 1)) << code_shift) & ((1u << codes.bits) - 1);
                i64 column = first * per_word + part;
                if (!is_row || column < 0 || column >= codes.columns) continue;
                float number;
                if (codes.bits < 16) {
                    number = times((float)code, has_factors ? scale : codes.scale[column]);
                    number = plus(number, has_factors ? offset : codes.offset[column]);
                } else {
                    number = codes.bfloat16 ? __uint_as_float(code << 16) : float_of_half(code);
                }
                unsigned bits = __float_as_uint(number);
                out.put(target + column, out.width == 2 ? rounded_to_bfloat16(bits) : bits);
            }
        }
    }
}
