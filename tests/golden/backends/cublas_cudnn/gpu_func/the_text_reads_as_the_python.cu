// gpu_funcs.py:35  def transpose_tiles(x, out):
// blocks of 8 x 8 threads; x_size_0 is the size of x.shape[0], out.shape[1]; x_size_1 is the size of x.shape[1], out.shape[0]
extern "C" __global__ void __launch_bounds__(64) transpose_tiles_kernel(const float *x, float *out,
        int64_t x_size_0, int64_t x_size_1) {
    __shared__ float tile[8 * 9];
    // gpu_funcs.py:37  tx, ty = cuda.thread_index.x, cuda.thread_index.y
    const int64_t tx = threadIdx.x;
    const int64_t ty = threadIdx.y;
    // gpu_funcs.py:38  row = cuda.block_index.y * TILE + ty
    int64_t row = (int64_t)blockIdx.y * 8 + ty;
    // gpu_funcs.py:39  column = cuda.block_index.x * TILE + tx
    int64_t column = (int64_t)blockIdx.x * 8 + tx;
    // gpu_funcs.py:40  if row < x.shape[0] and column < x.shape[1]:
    if ((row < x_size_0) && (column < x_size_1)) {
        // gpu_funcs.py:41  tile[ty, tx] = x[row, column]
        tile[ty * 9 + tx] = x[row * x_size_1 + column];
    }
    // gpu_funcs.py:42  cuda.syncthreads()
    __syncthreads();
    // gpu_funcs.py:43  row = cuda.block_index.x * TILE + ty
    row = (int64_t)blockIdx.x * 8 + ty;
    // gpu_funcs.py:44  column = cuda.block_index.y * TILE + tx
    column = (int64_t)blockIdx.y * 8 + tx;
    // gpu_funcs.py:45  if row < out.shape[0] and column < out.shape[1]:
    if ((row < x_size_1) && (column < x_size_0)) {
        // gpu_funcs.py:46  out[row, column] = tile[tx, ty]
        out[row * x_size_0 + column] = tile[tx * 9 + ty];
    }
}

// gpu_funcs.py:57  def block_sums(x, sums):
// blocks of 16 threads; x_size is the size of x; sums_size is the size of sums
extern "C" __global__ void __launch_bounds__(16) block_sums_kernel(const float *x, float *sums, int64_t x_size,
        int64_t sums_size, st_device_failure *failed) {
    __shared__ float parts[16];
    // gpu_funcs.py:60  t = cuda.thread_index.x
    const int64_t t = threadIdx.x;
    // gpu_funcs.py:61  total = 0.0
    float total = 0.0f;
    // gpu_funcs.py:62  for i in range(cuda.global_index.x, len(x), cuda.global_size.x):
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < x_size; i += step) {
        // gpu_funcs.py:63  total += x[i]
        total += x[i];
    }
    // gpu_funcs.py:64  parts[t] = total
    parts[t] = total;
    // gpu_funcs.py:65  cuda.syncthreads()
    __syncthreads();
    // gpu_funcs.py:66  half = cuda.block_size.x // 2
    int64_t half = (int64_t)blockDim.x / 2;
    // gpu_funcs.py:67  while half > 0:
    while (half > 0) {
        // gpu_funcs.py:68  if t < half:
        if (t < half) {
            // gpu_funcs.py:69  parts[t] += parts[t + half]
            parts[t] += parts[t + half];
        }
        // gpu_funcs.py:70  cuda.syncthreads()
        __syncthreads();
        // gpu_funcs.py:71  half //= 2
        half /= 2;
    }
    // gpu_funcs.py:72  if t == 0:
    if (t == 0) {
        // gpu_funcs.py:73  sums[cuda.block_index.x] = parts[0]
        {
            const int64_t place = st_device_thread_index(failed, 0, (int64_t)blockIdx.x, sums_size);
            if (place >= 0) {
                sums[place] = parts[0];
            }
        }
    }
}

// gpu_funcs.py:99  def histogram(x, counts):
// blocks of 32 threads; x_size is the size of x; counts_size is the size of counts
extern "C" __global__ void __launch_bounds__(32) histogram_kernel(const int64_t *x, int32_t *counts, int64_t x_size,
        int64_t counts_size, st_device_failure *failed) {
    __shared__ int32_t mine[16];
    // gpu_funcs.py:102  t = cuda.thread_index.x
    const int64_t t = threadIdx.x;
    // gpu_funcs.py:103  if t < 16:
    if (t < 16) {
        // gpu_funcs.py:104  mine[t] = 0
        mine[t] = 0;
    }
    // gpu_funcs.py:105  cuda.syncthreads()
    __syncthreads();
    // gpu_funcs.py:106  i = cuda.global_index.x
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    // gpu_funcs.py:107  while i < len(x):
    while (i < x_size) {
        // gpu_funcs.py:108  cuda.atomic_add(mine, x[i], 1)
        st_device_thread_atomic_add_i32(mine, st_device_thread_index(failed, 0, x[i], 16), 1);
        // gpu_funcs.py:109  i += cuda.global_size.x
        i += (int64_t)gridDim.x * blockDim.x;
    }
    // gpu_funcs.py:110  cuda.syncthreads()
    __syncthreads();
    // gpu_funcs.py:111  if t < 16:
    if (t < 16) {
        // gpu_funcs.py:112  cuda.atomic_add(counts, t, mine[t])
        st_device_thread_atomic_add_i32(counts, st_device_thread_index(failed, 1, t, counts_size), mine[t]);
    }
}

// gpu_funcs.py:141  def collatz(n, most, steps):
// blocks of 32 threads; n_size is the size of n, steps
extern "C" __global__ void __launch_bounds__(32) collatz_kernel(const int64_t *n, int64_t most, int64_t *steps,
        int64_t n_size) {
    // gpu_funcs.py:143  i = cuda.global_index.x
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    // gpu_funcs.py:144  if i >= len(n):
    if (i >= n_size) {
        // gpu_funcs.py:145  return
        return;
    }
    // gpu_funcs.py:146  value = n[i]
    int64_t value = n[i];
    // gpu_funcs.py:147  count = 0
    int64_t count = 0;
    // gpu_funcs.py:148  while True:
    while (true) {
        // gpu_funcs.py:149  if value == 1:
        if (value == 1) {
            // gpu_funcs.py:150  break
            break;
        }
        // gpu_funcs.py:151  if count >= most:
        if (count >= most) {
            // gpu_funcs.py:152  count = -1
            count = -1;
            // gpu_funcs.py:153  break
            break;
        }
        // gpu_funcs.py:154  if value % 2 == 0:
        if (st_device_remainder_i64(value, 2) == 0) {
            // gpu_funcs.py:155  value //= 2
            value = st_device_floor_divide_i64(value, 2);
            // gpu_funcs.py:156  count += 1
            count += 1;
            // gpu_funcs.py:157  continue
            continue;
        }
        // gpu_funcs.py:158  value = 3 * value + 1
        value = (int64_t)(3u * (uint64_t)value + 1u);
        // gpu_funcs.py:159  count += 1
        count += 1;
    }
    // gpu_funcs.py:160  steps[i] = count
    steps[i] = count;
}
