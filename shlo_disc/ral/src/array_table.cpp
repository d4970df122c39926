#include "array_table.h"

#include <memory>
#include <unordered_map>
#include <utility>

namespace shlo_disc {
namespace {

struct Entry {
  std::unique_ptr<ArrayRecord> record;
  PyObject* reference;  // owned weak reference
};

struct Table {
  std::unordered_map<PyObject*, Entry> arrays;
  std::unordered_map<PyObject*, PyObject*> by_reference;  // weak reference -> array (address)
  PyObject* callback = nullptr;
};

Table& table() {
  static Table* const instance = new Table();  // arrays may die during interpreter exit
  return *instance;
}

void erase(PyObject* array) {
  Table& all = table();
  const auto found = all.arrays.find(array);
  if (found == all.arrays.end()) return;
  PyObject* const reference = found->second.reference;
  all.by_reference.erase(reference);
  all.arrays.erase(found);
  Py_DECREF(reference);
}

PyObject* on_death(PyObject*, PyObject* reference) {
  const auto found = table().by_reference.find(reference);
  if (found != table().by_reference.end()) erase(found->second);
  Py_RETURN_NONE;
}

PyMethodDef on_death_method = {"on_array_death", &on_death, METH_O, nullptr};

}  // namespace

ArrayRecord* array_record(PyObject* array) {
  const Table& all = table();
  const auto found = all.arrays.find(array);
  return found == all.arrays.end() ? nullptr : found->second.record.get();
}

ArrayRecord* new_array_record(PyObject* array, std::shared_ptr<const ArrayType> type,
                              PyObject* device) {
  Table& all = table();
  if (all.callback == nullptr) {
    all.callback = PyCFunction_New(&on_death_method, nullptr);
    if (all.callback == nullptr) return nullptr;
  }
  PyObject* const reference = PyWeakref_NewRef(array, all.callback);
  if (reference == nullptr) return nullptr;
  // Making the reference may have run the garbage collector, and with it other threads.
  if (ArrayRecord* existing = array_record(array)) {
    Py_DECREF(reference);
    return existing;
  }
  Entry& entry = all.arrays[array];
  entry.record = std::make_unique<ArrayRecord>();
  entry.record->type = std::move(type);
  entry.record->device = device;
  entry.reference = reference;
  all.by_reference[reference] = array;
  return entry.record.get();
}

}  // namespace shlo_disc
