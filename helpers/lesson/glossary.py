"""Words: Table 2-1 (Triton beside CUDA) and the terms and units that lesson 00 introduces."""

TRITON_TO_CUDA = [
    {"Triton": "program", "CUDA": "block of 32 × num_warps threads", "note": "one program runs as one block"},
    {"Triton": "tl.program_id(axis)", "CUDA": "blockIdx.x / .y / .z", "note": "%ctaid in PTX"},
    {"Triton": "tl.num_programs(axis)", "CUDA": "gridDim", "note": "%nctaid in PTX"},
    {"Triton": "kernel[(gx, gy, gz)](...)", "CUDA": "kernel<<<grid, block>>>(...)",
     "note": "Triton's launch names no block size"},
    {"Triton": "num_warps (4 if not given)", "CUDA": "blockDim.x / 32", "note": "threads a program is spread over"},
    {"Triton": "num_stages (3 if not given)", "CUDA": "depth of a cp.async or TMA pipeline",
     "note": "loads issued ahead of a loop"},
    {"Triton": "num_ctas", "CUDA": "cluster size", "note": "compute capability 9.0 and later"},
    {"Triton": "tl.arange, tensors in a kernel", "CUDA": "index arithmetic and registers of each thread",
     "note": "the layout is the compiler's choice"},
    {"Triton": "mask=offsets < n", "CUDA": "if (i < n)", "note": "a predicate, @%p in PTX"},
    {"Triton": "tl.load, tl.store", "CUDA": "loads and stores through pointers",
     "note": "coalesced, and vectorised where divisibility is known"},
    {"Triton": "tl.sum, tl.max", "CUDA": "warp shuffles, shared memory, __syncthreads()",
     "note": "shared memory only when warps must meet"},
    {"Triton": "tl.dot", "CUDA": "a loop of FMAs, or mma on Tensor Cores", "note": "depends on input_precision"},
    {"Triton": "tl.constexpr", "CUDA": "template parameter", "note": "known when compiling"},
    {"Triton": "tl.atomic_add, ...", "CUDA": "atomicAdd, ...", "note": ""},
    {"Triton": "(none)", "CUDA": "__shared__, threadIdx, __syncthreads()", "note": "left to the compiler"},
]

TERMS = [
    {"term": "kernel", "meaning": "a function that runs on the GPU; its launch says how many blocks run it"},
    {"term": "thread", "meaning": "the smallest unit with registers of its own; runs on one lane"},
    {"term": "lane", "meaning": "a thread's place in its warp, 0 to 31; also the unit of an SMSP that executes it"},
    {"term": "warp", "meaning": "32 threads that issue instructions together"},
    {"term": "block", "meaning": "1 to 1024 threads on one SM, which share its shared memory and a barrier"},
    {"term": "program", "meaning": "Triton's name for a block, described as a whole"},
    {"term": "grid", "meaning": "all blocks, or programs, of one launch"},
    {"term": "SM", "meaning": "streaming multiprocessor: the part of the chip that a block runs on"},
    {"term": "SMSP", "meaning": "SM sub-partition: one warp scheduler with its registers and lanes; four make an SM"},
    {"term": "register", "meaning": "32 bits that belong to one thread, next to its lane; the fastest memory there is"},
    {"term": "shared memory", "meaning": "memory in the SM, close to the lanes, that the threads of one block share"},
    {"term": "device memory", "meaning": "the GPU's large memory, outside of its chip; CUDA says global memory"},
    {"term": "sector", "meaning": "32 bytes of memory, the least that is moved"},
    {"term": "occupancy", "meaning": "resident warps of an SM over the most it can hold"},
    {"term": "intensity", "meaning": "FLOPs per byte of device-memory traffic"},
    {"term": "compute capability", "meaning": "the version of a GPU's hardware, 12.0 for the RTX 5090; sm_120 where a compiler asks"},
]

UNITS = [
    {"unit": "GB, TB", "meaning": "1e9 and 1e12 bytes; used for rates and traffic"},
    {"unit": "KiB, MiB, GiB", "meaning": "2^10, 2^20, 2^30 bytes; used for capacities"},
    {"unit": "FLOP", "meaning": "one addition or multiplication; a fused multiply-add counts two"},
    {"unit": "TFLOPS", "meaning": "1e12 FLOPs a second; peaks are dense (no sparsity) and name the part"},
    {"unit": "time", "meaning": "median of the samples in microseconds, with the 20th and 80th percentile"},
]
