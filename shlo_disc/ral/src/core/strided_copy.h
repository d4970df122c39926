// Copies of arrays with any strides to dense row-major memory.
#ifndef SHLO_DISC_RAL_STRIDED_COPY_H_
#define SHLO_DISC_RAL_STRIDED_COPY_H_

#include <cstdint>

namespace shlo_disc {

// An array of `rank` dimensions in memory; sizes and strides in elements of `item` bytes.
struct StridedArray {
  const char* data;
  int64_t rank;
  const int64_t* sizes;
  const int64_t* strides;  // null: dense, row-major
  int64_t item;            // 1, 2, 4, 8 or 16
};

// True if the elements lie one after the other, the last dimension fastest.
bool is_dense(const StridedArray& array);

// Writes the elements to `to` in row-major order, by several threads if they are many. Needs no GIL.
void copy_dense(const StridedArray& array, char* to);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_STRIDED_COPY_H_
