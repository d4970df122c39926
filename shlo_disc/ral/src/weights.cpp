#include "weights.h"

#include <algorithm>
#include <new>
#include <unordered_map>
#include <utility>

namespace shlo_disc {

struct Weights::State {
  struct Entry {
    PyRef reference;  // weak; its callback removes the entry before the address is used again
    const void* data = nullptr;
    int64_t version = 0;
    std::vector<int64_t> layout;       // sizes, then strides
    std::shared_ptr<KeptWeight> kept;  // null: changed, and not seen again yet

    bool is(const WeightState& state) const {
      return data == state.data && version == state.version &&
             layout.size() == 2 * static_cast<size_t>(state.rank) &&
             std::equal(state.sizes, state.sizes + state.rank, layout.begin()) &&
             std::equal(state.strides, state.strides + state.rank, layout.begin() + state.rank);
    }

    void become(const WeightState& state) {
      data = state.data;
      version = state.version;
      layout.assign(state.sizes, state.sizes + state.rank);
      layout.insert(layout.end(), state.strides, state.strides + state.rank);
    }
  };

  PyRef keep;
  PyRef callback;
  std::unordered_map<PyObject*, Entry> entries;
};

namespace {

constexpr char kStateCapsule[] = "shlo_disc.weights";

// The element in the middle and up to a line of the cache behind it: an embedding begins with zeros.
void take_sample(const WeightState& state, KeptWeight* kept) {
  int64_t place = 0, run = 1;  // in elements
  for (int64_t i = 0; i < state.rank; ++i) {
    const int64_t middle = state.sizes[i] / 2;
    place += middle * state.strides[i];
    if (state.strides[i] == 1) run = std::max(run, state.sizes[i] - middle);
  }
  kept->sample = static_cast<const char*>(state.data) + place * state.item;
  kept->sample_bytes =
      static_cast<size_t>(std::min<int64_t>(sizeof kept->sampled, run * state.item));
  std::memcpy(kept->sampled, kept->sample, kept->sample_bytes);
}

}  // namespace

// A callback may run after the table is gone: the interpreter collects callbacks before it calls them.
// So it holds a weak pointer.
Weights::Weights(PyRef keep) : state_(std::make_shared<State>()) {
  using Pointer = std::weak_ptr<State>;
  static PyMethodDef method = {
      "on_weight_death",
      [](PyObject* capsule, PyObject* reference) -> PyObject* {
        const auto* const pointer =
            static_cast<Pointer*>(PyCapsule_GetPointer(capsule, kStateCapsule));
        if (const std::shared_ptr<State> state = pointer->lock()) {
          auto& entries = state->entries;
          const auto found = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) {
            return entry.second.reference.get() == reference;
          });
          if (found != entries.end()) {
            const State::Entry gone = std::move(found->second);  // dies after it is out of the table
            entries.erase(found);
          }
        }
        Py_RETURN_NONE;
      },
      METH_O, nullptr};
  state_->keep = std::move(keep);
  auto pointer = std::make_unique<Pointer>(state_);
  const PyRef capsule(PyCapsule_New(pointer.get(), kStateCapsule, [](PyObject* self) {
    delete static_cast<Pointer*>(PyCapsule_GetPointer(self, kStateCapsule));
  }));
  if (!capsule) throw std::bad_alloc();
  pointer.release();
  state_->callback = PyRef(PyCFunction_New(&method, capsule.get()));
  if (!state_->callback) throw std::bad_alloc();
}

Weights::~Weights() { clear(); }

void Weights::forget(PyObject* array, const KeptWeight& kept) {
  const auto found = state_->entries.find(array);
  if (found == state_->entries.end() || found->second.kept.get() != &kept) return;
  const std::shared_ptr<KeptWeight> old = std::move(found->second.kept);
  found->second.kept = nullptr;
}

int64_t Weights::count() const {
  return std::count_if(state_->entries.begin(), state_->entries.end(),
                       [](const auto& entry) { return entry.second.kept != nullptr; });
}

void Weights::clear() { const auto old = std::exchange(state_->entries, {}); }

int Weights::traverse(visitproc visit, void* arg) const {
  Py_VISIT(state_->keep.get());
  return 0;
}

bool Weights::find(PyObject* array, const WeightState& state,
                   bool (*is_current)(PyObject*, const void*), std::shared_ptr<KeptWeight>* out) {
  auto& entries = state_->entries;
  auto found = entries.find(array);
  if (found != entries.end()) {
    State::Entry& entry = found->second;
    if (entry.is(state)) {
      if (entry.kept != nullptr) {
        __builtin_prefetch(entry.kept->sample);  // compared when all arguments are read
        *out = entry.kept;
        return true;
      }
    } else {
      const std::shared_ptr<KeptWeight> old = std::move(entry.kept);  // dies last: runs Python code
      entry.kept = nullptr;
      entry.become(state);
      return true;
    }
  }
  PyRef reference;
  if (found == entries.end()) {
    reference = PyRef(PyWeakref_NewRef(array, state_->callback.get()));
    if (!reference) return false;
  }
  auto kept = std::make_shared<KeptWeight>();
  kept->data = state.data;
  kept->memory = PyRef(PyObject_CallOneArg(state_->keep.get(), array));
  if (!kept->memory) return false;
  if (!is_current(array, state.data)) return false;
  if (state.version != kFrozen) take_sample(state, kept.get());
  // Other threads may have run: they may have made the entry, or changed it.
  found = entries.find(array);
  if (found == entries.end()) {
    if (!reference) return true;
    found = entries.emplace(array, State::Entry{}).first;
    found->second.reference = std::move(reference);
    found->second.become(state);
  }
  State::Entry& entry = found->second;
  if (!entry.is(state)) return true;
  if (entry.kept == nullptr) entry.kept = std::move(kept);
  *out = entry.kept;
  return true;
}

}  // namespace shlo_disc
