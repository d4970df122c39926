// Weights beside an artifact: safetensors files. shlo_disc/artifacts/safetensors.py writes them.
#ifndef SHLO_DISC_RAL_SAFETENSORS_H_
#define SHLO_DISC_RAL_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace shlo_disc {

struct StoredTensor {
  std::string dtype;  // "F32"
  std::vector<int64_t> sizes;
  std::string_view data;  // a part of the file
};

// All tensors of a file by name. Throws ArtifactError.
std::map<std::string, StoredTensor> read_safetensors(std::string_view file);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_SAFETENSORS_H_
