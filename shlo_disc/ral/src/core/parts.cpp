#include "parts.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "call.h"
#include "container.h"
#include "gpu_call_memory.h"

namespace shlo_disc {
namespace {

using Step = Manifest::Step;

constexpr size_t kMostDepth = 64;  // steps in steps: a call takes a frame of the stack for each

[[noreturn]] void refuse(const std::string& why) {
  throw ArtifactError(ArtifactError::kDamaged, "the manifest: " + why);
}

struct Type {
  DType dtype;
  size_t rank;
  bool operator==(const Type& other) const { return dtype == other.dtype && rank == other.rank; }
};
using Types = std::vector<Type>;

Type type_of(const Manifest::Argument& argument) { return {argument.dtype, argument.sizes.size()}; }
Type type_of(const Manifest::Result& result) { return {result.dtype, result.texts.size()}; }

template <typename Rows>
Types types_of(const Rows& rows) {
  Types out;
  for (const auto& row : rows) out.push_back(type_of(row));
  return out;
}

// Follows the steps as a call does, with types in place of arrays.
class Checker {
 public:
  explicit Checker(const Manifest& manifest) : manifest_(manifest), is_run_(manifest.parts.size()) {}

  void check() {
    check_tree();
    const size_t whole = manifest_.steps.size() - 1;
    if (manifest_.steps[whole].kind != Step::kSequence) refuse("the whole is no sequence");
    values_ = types_of(manifest_.arguments);
    const Manifest::Part& last = manifest_.parts[manifest_.last()];
    const Types taken = types_of(last.arguments);
    if (taken.size() < values_.size() || !std::equal(values_.begin(), values_.end(), taken.begin()) ||
        types_of(last.results) != types_of(manifest_.results)) {
      refuse("the last program has other arguments or results than the whole");
    }
    given(whole, 0);
  }

 private:
  // Each step is one of a later step, the last aside, and each sequence ends with a program that gives its results.
  void check_tree() const {
    const auto& steps = manifest_.steps;
    std::vector<bool> is_used(steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      for (const size_t k : step.steps) {
        if (k >= i || is_used[k]) refuse("the steps are no tree");
        is_used[k] = true;
      }
      const size_t count = step.steps.size();
      const bool has_any = step.kind == Step::kSequence || step.kind == Step::kBranches;
      const size_t wanted = step.kind == Step::kLoop || step.kind == Step::kGuarded ? 2 : 0;
      if (has_any ? count == 0 : count != wanted) refuse("a step has a wrong number of steps");
      const auto is = [&](size_t place, Step::Kind kind) { return steps[step.steps[place]].kind == kind; };
      if (step.kind == Step::kSequence && !is(count - 1, Step::kProgram) && !is(count - 1, Step::kGuarded)) {
        refuse("a sequence ends with no program");
      }
      if (step.kind == Step::kGuarded &&
          (!is(0, Step::kProgram) || !is(1, Step::kSequence) ||
           steps[steps[step.steps[1]].steps.back()].kind != Step::kProgram)) {
        refuse("what is guarded is no program, or there is no other sequence in place of it");
      }
      if (step.kind == Step::kProgram && step.number >= manifest_.parts.size()) refuse("an index out of bounds");
    }
    if (std::count(is_used.begin(), is_used.end(), false) != 1) refuse("the steps are no tree");
  }

  // What a step gives for `values_`, which it leaves as they are; nothing: it fails in every call.
  std::optional<Types> given(size_t index, size_t depth) {
    if (depth > kMostDepth) refuse("too many steps in steps");
    const Step& step = manifest_.steps[index];
    switch (step.kind) {
      case Step::kProgram: return by_program(step);
      case Step::kSequence: return by_sequence(step, depth);
      case Step::kBranches:
        if (const Type& index = value(step.number);
            index.rank != 0 || (index.dtype != DType::kBool && index.dtype != DType::kInt32)) {
          refuse("the number of a branch is no scalar of bool or int32");
        }
        return by_one(step, depth);
      case Step::kLoop: return by_loop(step, depth);
      case Step::kGuarded: return by_one(step, depth);
      case Step::kImpossible: break;
    }
    return {};
  }

  std::optional<Types> by_program(const Step& step) {
    // So the work here is bounded by the bytes of the manifest.
    if (is_run_[step.number]) refuse("a program is in two steps");
    is_run_[step.number] = true;
    const Manifest::Part& part = manifest_.parts[step.number];
    if (types_of(part.arguments) != values_) refuse("a program has other arguments than the values so far");
    return types_of(part.results);
  }

  std::optional<Types> by_sequence(const Step& step, size_t depth) {
    const size_t count = values_.size();
    std::optional<Types> out;
    for (const size_t k : step.steps) {
      out = given(k, depth + 1);
      if (!out) break;
      values_.insert(values_.end(), out->begin(), out->end());
    }
    values_.resize(count);
    return out;
  }

  // One of its steps runs.
  std::optional<Types> by_one(const Step& step, size_t depth) {
    std::optional<Types> out;
    for (const size_t k : step.steps) {
      const std::optional<Types> one = given(k, depth + 1);
      if (out && one && *out != *one) refuse("steps of which one runs give other types than each other");
      if (one) out = one;
    }
    return out;
  }

  std::optional<Types> by_loop(const Step& step, size_t depth) {
    const size_t count = values_.size();
    Types carried;
    for (const size_t number : step.numbers) carried.push_back(value(number));
    values_.insert(values_.end(), carried.begin(), carried.end());
    const std::optional<Types> condition = given(step.steps[0], depth + 1);
    const std::optional<Types> body = given(step.steps[1], depth + 1);
    values_.resize(count);
    if (condition && (condition->empty() || !(condition->front() == Type{DType::kBool, 0}))) {
      refuse("the condition of a loop is no scalar of bool");
    }
    if (body && *body != carried) refuse("a loop carries other types than it begins with");
    return condition ? std::optional(carried) : std::nullopt;
  }

  const Type& value(size_t number) const {
    if (number >= values_.size()) refuse("an index out of bounds");
    return values_[number];
  }

  const Manifest& manifest_;
  std::vector<bool> is_run_;
  Types values_;
};

// Memory for the results and the temporary values of one program.
class OnePart : public CallMemory {
 public:
  OnePart(PartMemory& memory, size_t results) : memory_(memory), made_(results) {}

  bool result(size_t i, const int64_t*, int64_t bytes, void** data) override {
    made_[i] = memory_.take(bytes, data);
    return made_[i] != nullptr;
  }
  const GpuPlace* place() const override { return memory_.place(); }
  bool arena(int64_t bytes, void** data) override {
    arena_ = memory_.take(bytes, data);
    return arena_ != nullptr;
  }
  std::shared_ptr<void> made(size_t i) { return std::move(made_[i]); }

 private:
  PartMemory& memory_;
  std::vector<std::shared_ptr<void>> made_;
  std::shared_ptr<void> arena_;
};

}  // namespace

void check_steps(const Manifest& manifest) {
  if (manifest.steps.empty() || manifest.parts.empty()) refuse("it has steps without programs, or programs without");
  Checker(manifest).check();
}

// One call. Every step takes `values`, which it leaves as they are, and puts what it gives into `out`.
struct Parts::Run {
  const Parts& parts;
  std::vector<PartArray>& values;
  const size_t arguments;  // that the caller of the artifact gave; values behind them have no owners
  PackOwner* const* const owners;
  PartMemory& memory;
  Failure& failure;

  bool step(size_t index, std::vector<PartArray>& out) {
    const Step& step = parts.steps_[index];
    switch (step.kind) {
      case Step::kProgram: return program(*parts.programs_[step.number], out);
      case Step::kSequence: return sequence(step, out);
      case Step::kBranches: return branches(step, out);
      case Step::kLoop: return loop(step, out);
      case Step::kGuarded: return guarded(step, out);
      case Step::kImpossible: break;
    }
    return failure.set(Failure::Kind::kGuard, step.text);
  }

  bool program(const Executable& executable, std::vector<PartArray>& out) {
    Call call(executable);
    for (const PartArray& value : values) {
      if (!call.take(value.data, value.dtype, static_cast<int64_t>(value.sizes.size()), value.sizes.data())) {
        return failed(call);
      }
    }
    std::vector<PackOwner*> own;
    if (owners != nullptr) {
      own.assign(values.size(), nullptr);
      for (size_t i = 0; i < arguments; ++i) {
        if (executable.spec().arguments[i].packable) own[i] = owners[i];
      }
      call.owners = own.data();
    }
    if (const GpuPlace* const place = memory.place(); place == nullptr) {
      call.read_size_elements(call.arguments());
    } else if (!read_size_elements(call, *place)) {
      return failed(call);
    }
    const std::vector<ResultSpec>& results = executable.spec().results;
    OnePart one(memory, results.size());
    if (!call.prepare() || !call.run(one)) return failed(call);
    const int64_t* sizes = call.result_sizes();
    for (size_t i = 0; i < results.size(); ++i) {
      const int64_t* const end = sizes + results[i].rank;
      out.push_back({call.results()[i], results[i].dtype, std::vector(sizes, end), one.made(i)});
      sizes = end;
    }
    return true;
  }

  bool guarded(const Step& step, std::vector<PartArray>& out) {
    if (this->step(step.steps[0], out)) return true;
    if (!parts.runs_apart(step, failure)) return false;
    failure = Failure();
    return this->step(step.steps[1], out);
  }

  bool sequence(const Step& step, std::vector<PartArray>& out) {
    const size_t count = values.size();
    const bool done = std::all_of(step.steps.begin(), step.steps.end() - 1,
                                  [&](size_t k) { return append(k); }) &&
                      this->step(step.steps.back(), out);
    values.resize(count);
    return done;
  }

  // Runs a step, and puts what it gives behind the values.
  bool append(size_t index) {
    std::vector<PartArray> given;
    if (!step(index, given)) return false;
    std::move(given.begin(), given.end(), std::back_inserter(values));
    return true;
  }

  bool branches(const Step& step, std::vector<PartArray>& out) {
    const PartArray& chosen = values[step.number];
    int32_t number = 0;
    if (!read(&number, chosen)) return false;
    const size_t last = step.steps.size() - 1;
    return this->step(step.steps[number < 0 ? last : std::min(static_cast<size_t>(number), last)], out);
  }

  bool loop(const Step& step, std::vector<PartArray>& out) {
    const size_t count = values.size();
    for (const size_t number : step.numbers) values.push_back(PartArray(values[number]));
    bool has_run = false;
    const bool done = iterate(step, count, has_run);
    const auto carried = values.begin() + static_cast<ptrdiff_t>(count);
    if (done) std::move(carried, values.end(), std::back_inserter(out));
    values.resize(count);
    return done && (has_run || copy(out));
  }

  // The values from `first` on are those that the loop carries.
  bool iterate(const Step& step, size_t first, bool& has_run) {
    while (true) {
      std::vector<PartArray> goes_on;
      if (!this->step(step.steps[0], goes_on)) return false;
      int32_t is_true = 0;
      if (!read(&is_true, goes_on[0])) return false;
      if (is_true == 0) return true;
      has_run = true;
      std::vector<PartArray> carried;
      if (!this->step(step.steps[1], carried)) return false;
      std::move(carried.begin(), carried.end(), values.begin() + static_cast<ptrdiff_t>(first));
    }
  }

  // Reads a scalar of bool or int32 into `to`, which is zero.
  bool read(int32_t* to, const PartArray& value) {
    const size_t bytes = value.dtype == DType::kBool ? 1 : sizeof *to;
    if (memory.place() != nullptr) {
      return read_from(*memory.place(), to, value.data, static_cast<int64_t>(bytes), "values that steps depend on",
                       &failure);
    }
    std::memcpy(to, value.data, bytes);
    return true;
  }

  // Gives each array memory of its own: a later program may write a result over a donated argument.
  bool copy(std::vector<PartArray>& arrays) {
    for (PartArray& array : arrays) {
      const int64_t bytes = array_bytes(array.dtype, static_cast<int64_t>(array.sizes.size()), array.sizes.data());
      void* data = nullptr;
      std::shared_ptr<void> own = memory.take(bytes, &data);
      if (own == nullptr) {
        return failure.set(Failure::Kind::kOutOfMemory, "there is no memory for what a loop carries");
      }
      if (!copy(data, array.data, bytes)) return false;
      array.data = data;
      array.memory = std::move(own);
    }
    return true;
  }

  bool copy(void* to, const void* from, int64_t bytes) {
    if (bytes == 0) return true;
    const GpuPlace* const place = memory.place();
    if (place == nullptr) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
      return true;
    }
    const GpuScope scope(*place->device);
    const int error = place->device->call().copy_on_device(to, from, static_cast<size_t>(bytes), place->stream);
    return place->device->driver().check(error, "what a loop carries cannot be copied", &failure);
  }

  bool failed(const Call& call) {
    failure = call.failure;
    return false;
  }
};

bool Parts::run_first(size_t sequence, std::vector<PartArray>& values, size_t arguments, PackOwner* const* owners,
                      PartMemory& memory, Failure& failure) const {
  Run run{*this, values, arguments, owners, memory, failure};
  const std::vector<size_t>& steps = steps_[sequence].steps;
  return std::all_of(steps.begin(), steps.end() - 1, [&](size_t k) { return run.append(k); });
}

const Manifest::Step& Parts::program_of(const Step& step) const {
  return step.kind == Step::kGuarded ? steps_[step.steps[0]] : step;
}

const Executable& Parts::last(size_t sequence) const {
  return *programs_[program_of(steps_[steps_[sequence].steps.back()]).number];
}

// A program cannot be run again where it may have written over a donated argument.
bool Parts::runs_apart(const Step& step, const Failure& failure) const {
  if (failure.kind == Failure::Kind::kOutOfMemory) return !programs_[program_of(step).number]->spec().donates;
  return failure.kind == Failure::Kind::kGuard &&
         std::count(step.numbers.begin(), step.numbers.end(), static_cast<size_t>(failure.index)) != 0;
}

std::optional<size_t> Parts::apart(size_t sequence, const Failure& failure) const {
  const Step& last = steps_[steps_[sequence].steps.back()];
  if (last.kind != Step::kGuarded || !runs_apart(last, failure)) return {};
  return last.steps[1];
}

}  // namespace shlo_disc
