// What is known of immutable arrays seen before, by identity.
//
// A record lives exactly as long as its Python object: a weak reference with a callback removes
// it before the address can be used again. All functions need the GIL.
#ifndef SHLO_DISC_RAL_ARRAY_TABLE_H_
#define SHLO_DISC_RAL_ARRAY_TABLE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "executable.h"
#include "pack_cache.h"
#include "py_support.h"

namespace shlo_disc {

struct ArrayType {
  DType dtype;
  std::vector<int64_t> sizes;
};

struct ArrayRecord {
  std::shared_ptr<const ArrayType> type;
  PyObject* device = nullptr;  // where the array is committed to; null: uncommitted (not owned)
  void* data = nullptr;        // until it is deleted, for results of ours; null: JAX knows
  // Made when it is first passed as a packable argument, so a later call that finds it may pack.
  std::unique_ptr<PackOwner> owner;
};

// The record of a live array; null when there is none.
ArrayRecord* array_record(PyObject* array);

// Makes one (or returns what another thread made meanwhile); null with a Python error set when the
// array cannot be weakly referenced.
ArrayRecord* new_array_record(PyObject* array, std::shared_ptr<const ArrayType> type,
                              PyObject* device);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_ARRAY_TABLE_H_
