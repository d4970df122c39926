#include "strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "small_vector.h"
#include "thread_pool.h"

namespace shlo_disc {
namespace {

constexpr int64_t kTaskBytes = 32 << 10;  // below this a thread costs more than it saves

// Rows of a task, and columns it copies of each before it goes on: so much stays in the first cache.
constexpr int64_t kTile = 64;

// What tasks share: runs along two dimensions, at every place of the `rank` others.
//
//   to[place][i][k] = from[place][i * step_i + k * step_k]
struct Plan {
  const char* from;
  char* to;
  int64_t item;
  int64_t rank;
  const int64_t* sizes;    // of the others, then
  const int64_t* strides;  // of the source and
  const int64_t* places;   // of the destination, in elements
  int64_t rows, row_step, row_place;
  int64_t columns, column_step;  // columns are dense in the destination
  int64_t row_blocks;            // tasks at one place
};

struct Wide {
  uint64_t low, high;
};

// to[i * step_to + k] = from[i + k * step_from] for a square of a line's width.
template <typename T>
void transpose_square(const char* from, int64_t step_from, T* to, int64_t step_to) {
  constexpr auto kItem = static_cast<int64_t>(sizeof(T));
  constexpr int64_t kLine = 64 / kItem;
  T lines[kLine][kLine];
  for (int64_t k = 0; k < kLine; ++k) std::memcpy(lines[k], from + k * step_from * kItem, 64);
  for (int64_t i = 0; i < kLine; ++i) {
    T line[kLine];
    for (int64_t k = 0; k < kLine; ++k) line[k] = lines[k][i];
    std::memcpy(to + i * step_to, line, 64);
  }
}

// Rows follow each other in the source: a transpose. Every line of the source is read whole and once,
// for lines of equal distance share few places of the cache (2048 x 2048 floats: 8 ms, not 21).
template <typename T>
void transpose_rows(const Plan& plan, const char* from, T* to, int64_t begin, int64_t end) {
  constexpr auto kItem = static_cast<int64_t>(sizeof(T));
  constexpr int64_t kLine = 64 / kItem;
  for (int64_t column = 0; column < plan.columns; column += kLine) {
    const int64_t columns = std::min(kLine, plan.columns - column);
    for (int64_t row = begin; row < end; row += kLine) {
      const int64_t rows = std::min(kLine, end - row);
      const char* const source = from + (column * plan.column_step + row) * kItem;
      T* const target = to + row * plan.row_place + column;
      if (rows == kLine && columns == kLine) {
        transpose_square(source, plan.column_step, target, plan.row_place);
        continue;
      }
      for (int64_t k = 0; k < columns; ++k) {
        for (int64_t i = 0; i < rows; ++i) {
          std::memcpy(target + i * plan.row_place + k,
                      source + (k * plan.column_step + i) * kItem, sizeof(T));
        }
      }
    }
  }
}

// `from` may be misaligned.
template <typename T>
void copy_rows(const Plan& plan, const char* from, T* to, int64_t begin, int64_t end) {
  constexpr auto kItem = static_cast<int64_t>(sizeof(T));
  if (plan.column_step == 1) {
    const size_t bytes = static_cast<size_t>(plan.columns) * sizeof(T);
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(to + i * plan.row_place, from + i * plan.row_step * kItem, bytes);
    }
    return;
  }
  if (plan.column_step == 0) {  // a broadcast: every element fills a row
    for (int64_t i = begin; i < end; ++i) {
      T element;
      std::memcpy(&element, from + i * plan.row_step * kItem, sizeof(T));
      std::fill_n(to + i * plan.row_place, plan.columns, element);
    }
    return;
  }
  if (plan.row_step == 0 && end - begin > 1) {  // all rows are the first one
    copy_rows(plan, from, to, begin, begin + 1);
    const T* const first = to + begin * plan.row_place;
    for (int64_t i = begin + 1; i < end; ++i) {
      std::copy_n(first, plan.columns, to + i * plan.row_place);
    }
    return;
  }
  if (plan.row_step == 1) {
    transpose_rows(plan, from, to, begin, end);
    return;
  }
  for (int64_t first = 0; first < plan.columns; first += kTile) {
    const int64_t last = std::min(first + kTile, plan.columns);
    for (int64_t i = begin; i < end; ++i) {
      const char* const source = from + i * plan.row_step * kItem;
      T* const target = to + i * plan.row_place;
      for (int64_t k = first; k < last; ++k) {
        std::memcpy(target + k, source + k * plan.column_step * kItem, sizeof(T));
      }
    }
  }
}

// A task is a block of kTile rows at one place.
void copy_tasks(void* const* args, const int64_t*, int64_t begin, int64_t end, void*) {
  const Plan& plan = *static_cast<const Plan*>(args[0]);
  for (int64_t task = begin; task < end; ++task) {
    int64_t place = task / plan.row_blocks;
    int64_t source = 0, target = 0;
    for (int64_t d = plan.rank - 1; d >= 0; --d) {
      const int64_t index = place % plan.sizes[d];
      place /= plan.sizes[d];
      source += index * plan.strides[d];
      target += index * plan.places[d];
    }
    const int64_t first = task % plan.row_blocks * kTile;
    const int64_t last = std::min(first + kTile, plan.rows);
    const char* const from = plan.from + source * plan.item;
    char* const to = plan.to + target * plan.item;
    const auto copy = [&](auto element) {
      using T = decltype(element);
      copy_rows(plan, from, reinterpret_cast<T*>(to), first, last);
    };
    switch (plan.item) {
      case 1: copy(uint8_t{}); break;
      case 2: copy(uint16_t{}); break;
      case 4: copy(uint32_t{}); break;
      case 8: copy(uint64_t{}); break;
      default: copy(Wide{}); break;
    }
  }
}

}  // namespace

bool is_dense(const StridedArray& array) {
  if (array.strides == nullptr) return true;
  if (std::find(array.sizes, array.sizes + array.rank, 0) != array.sizes + array.rank) return true;
  int64_t expected = 1;
  for (int64_t i = array.rank - 1; i >= 0; --i) {
    if (array.sizes[i] != 1 && array.strides[i] != expected) return false;
    expected *= array.sizes[i];
  }
  return true;
}

void copy_dense(const StridedArray& array, char* to) {
  const auto room = static_cast<size_t>(array.rank);
  SmallVector<int64_t, 16> sizes(room), strides(room), places(room);
  int64_t count = 1;
  for (int64_t i = 0; i < array.rank; ++i) count *= array.sizes[i];
  if (count == 0) return;
  if (is_dense(array)) {
    std::memcpy(to, array.data, static_cast<size_t>(count * array.item));
    return;
  }
  // Dimensions that are one after the other in the source as well are one.
  size_t rank = 0;
  for (int64_t i = 0; i < array.rank; ++i) {
    if (array.sizes[i] == 1) continue;
    if (rank != 0 && strides[rank - 1] == array.strides[i] * array.sizes[i]) {
      sizes[rank - 1] *= array.sizes[i];
      strides[rank - 1] = array.strides[i];
    } else {
      sizes[rank] = array.sizes[i];
      strides[rank++] = array.strides[i];
    }
  }
  int64_t place = 1;
  for (size_t d = rank; d-- > 0;) {
    places[d] = place;
    place *= sizes[d];
  }
  Plan plan{};
  plan.from = array.data;
  plan.to = to;
  plan.item = array.item;
  plan.columns = sizes[rank - 1];
  plan.column_step = strides[rank - 1];
  plan.rows = 1;
  --rank;
  if (rank != 0) {
    // Rows are the dimension whose elements lie closest together in the source, but where columns do:
    // then the last one, whose rows follow each other.
    size_t rows = rank - 1;
    if (plan.column_step != 1) {
      for (size_t d = 0; d < rank; ++d) {
        if (std::abs(strides[d]) < std::abs(strides[rows])) rows = d;
      }
    }
    plan.rows = sizes[rows];
    plan.row_step = strides[rows];
    plan.row_place = places[rows];
    for (SmallVector<int64_t, 16>* const list : {&sizes, &strides, &places}) {
      std::copy(list->begin() + rows + 1, list->begin() + rank, list->begin() + rows);
    }
    --rank;
  }
  plan.rank = static_cast<int64_t>(rank);
  plan.sizes = sizes.data();
  plan.strides = strides.data();
  plan.places = places.data();
  plan.row_blocks = (plan.rows + kTile - 1) / kTile;
  const int64_t tasks = count / (plan.rows * plan.columns) * plan.row_blocks;
  const int64_t task_bytes =
      std::max<int64_t>(1, std::min(plan.rows, kTile) * plan.columns * plan.item);
  void* const args[] = {&plan};
  const int64_t grain = std::max<int64_t>(1, kTaskBytes / task_bytes);
  // Without scratch memory nothing can fail.
  if (!parallel_for(&copy_tasks, args, nullptr, tasks, grain, 0)) {
    copy_tasks(args, nullptr, 0, tasks, nullptr);
  }
}

}  // namespace shlo_disc
