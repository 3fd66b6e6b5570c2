#include "arrays.cuh"

// Copy the seeds, with 0 in place of those that are no nodes, if `is_wrong` is to be written.
extern "C" __global__ void clean_seeds(
    const void *seeds, i64 width, i64 num_seeds, i64 num_nodes, void *clean, i64 *is_wrong) {
    Ints given = {seeds, width};
    EACH(item, num_seeds) {
        i64 node = given[item];
        if (node < 0 || node >= num_nodes) {
            atomicMax(is_wrong, 1ll);
            node = 0;
        }
        store(clean, width, item, node);
    }
}
