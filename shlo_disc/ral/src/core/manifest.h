// What `manifest.bin` of an artifact holds. shlo_disc/artifacts/manifest.py writes it, and says what each field
// means.
#ifndef SHLO_DISC_RAL_MANIFEST_H_
#define SHLO_DISC_RAL_MANIFEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "blake2b.h"
#include "executable.h"
#include "foreign_call.h"

namespace shlo_disc {

struct Manifest {
  struct Member {
    std::string name;
    size_t bytes;
    Digest digest;
  };
  struct Span {
    int64_t member;  // -1 - k: tensor k, which a constant may be
    size_t offset, bytes;
  };
  struct Tensor {
    std::string name, dtype;
    std::vector<int64_t> sizes;
    size_t bytes;
    Digest digest;
  };
  struct Argument {
    std::string name;
    DType dtype;
    std::vector<int64_t> sizes;
    std::vector<std::string> texts;
  };
  struct Result {
    std::string name;
    DType dtype;
    std::vector<std::string> texts;
  };
  struct Function {
    size_t object;
    std::string name;
  };
  struct Pack {
    size_t target, constant, slot;  // the last is a place in the target's `pack_layouts`
    Span data;
  };
  struct Target {
    std::string name, machine;
    std::vector<std::string> features;
    int64_t cores;
    std::vector<Span> objects;
    Function prepare, run;
    std::vector<Function> kernels;
    int64_t symbols;
    std::vector<std::string> guards, pack_layouts;
    std::vector<Span> constants;
    std::vector<size_t> size_arguments, packable, donated, unread;
    std::vector<std::pair<size_t, size_t>> reuses;
  };
  struct Device {
    size_t target;  // whose kernels these are
    GpuPlatform platform;
    std::string architecture;
    std::vector<Span> images, machine_code;  // of the latter one an image, which may be empty
    std::vector<GpuKernel> kernels;
  };
  struct Foreign {
    size_t target;               // that calls it
    std::vector<size_t> stages;  // its handler has
    ForeignSpec call;            // without handlers
  };

  struct Part {
    std::string name;
    std::vector<Argument> arguments;
    std::vector<Result> results;
  };
  struct Step {
    enum Kind { kProgram, kSequence, kBranches, kLoop, kGuarded, kImpossible };
    Kind kind;
    size_t number;
    std::vector<size_t> steps, numbers;
    std::string text;
  };

  // The part that gives the results.
  size_t last() const {
    const Step& step = steps[steps.back().steps.back()];
    return (step.kind == Step::kGuarded ? steps[step.steps[0]] : step).number;
  }

  std::string compiler;
  std::vector<Member> members;
  std::string name;
  std::vector<Argument> arguments;
  std::vector<Result> results;
  std::vector<Target> targets;
  std::string weights_file;  // empty: there are no tensors
  std::vector<Tensor> tensors;
  std::vector<Pack> packs;
  std::vector<Part> parts;  // one at least
  std::vector<Step> steps;
  std::vector<Device> devices;  // one for each row of a target for GPUs
  std::vector<Foreign> foreign;  // of each target as its code counts them
};

// Checks every length, every index, and the types between parts. Throws ArtifactError.
Manifest read_manifest(std::string_view data);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_MANIFEST_H_
