#include "safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "container.h"
#include "utf8.h"

namespace shlo_disc {
namespace {

constexpr uint64_t kMostHeader = 100'000'000;  // as in the library `safetensors`

[[noreturn]] void refuse(const std::string& why) { throw ArtifactError(ArtifactError::kDamaged, why); }

// Reads the JSON that headers have: objects, texts, and lists of numbers.
class Json {
 public:
  explicit Json(std::string_view rest) : rest_(rest) {}

  // Calls `member(name)`, which reads the value, for every member of an object.
  template <typename Member>
  void object(const Member& member) {
    expect('{');
    if (accepts('}')) return;
    do {
      const std::string name = text();
      expect(':');
      member(name);
    } while (accepts(','));
    expect('}');
  }

  std::vector<int64_t> numbers() {
    std::vector<int64_t> out;
    expect('[');
    if (accepts(']')) return out;
    do {
      out.push_back(number());
    } while (accepts(','));
    expect(']');
    return out;
  }

  // Characters behind a backslash are left as they are: no name that is looked for has one.
  std::string text() {
    expect('"');
    std::string out;
    for (;;) {
      const char next = take();
      if (next == '"') return out;
      if (static_cast<unsigned char>(next) < ' ') refuse("the header has a text with a control character");
      out += next;
      if (next == '\\') out += take();
    }
  }

  void expect_end() {
    skip_space();
    if (!rest_.empty()) refuse("the header has bytes behind its end");
  }

 private:
  void skip_space() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }
  char take() {
    if (rest_.empty()) refuse("the header is truncated");
    const char next = rest_.front();
    rest_.remove_prefix(1);
    return next;
  }
  bool accepts(char wanted) {
    skip_space();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char wanted) {
    if (!accepts(wanted)) refuse(std::string("the header has no '") + wanted + "' where there must be one");
  }
  int64_t number() {
    skip_space();
    const size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    if (digits == 0 || digits > 18) refuse("the header has no number where there must be one");
    const int64_t out = std::stoll(std::string(rest_.substr(0, digits)));
    rest_.remove_prefix(digits);
    return out;
  }

  std::string_view rest_;
};

StoredTensor tensor(Json& json, const std::string& name, std::string_view data) {
  StoredTensor out;
  std::vector<int64_t> offsets;
  json.object([&](const std::string& field) {
    if (field == "dtype") {
      out.dtype = json.text();
    } else if (field == "shape") {
      out.sizes = json.numbers();
    } else if (field == "data_offsets") {
      offsets = json.numbers();
    } else {
      refuse("the row of " + name + " has an unknown field");
    }
  });
  if (offsets.size() != 2 || offsets[0] > offsets[1]) refuse("the row of " + name + " is damaged");
  if (static_cast<uint64_t>(offsets[1]) > data.size()) {
    refuse(name + " is outside the file, which may be truncated");
  }
  out.data = data.substr(static_cast<size_t>(offsets[0]), static_cast<size_t>(offsets[1] - offsets[0]));
  return out;
}

}  // namespace

std::map<std::string, StoredTensor> read_safetensors(std::string_view file) {
  uint64_t length = 0;
  if (file.size() >= sizeof length) std::memcpy(&length, file.data(), sizeof length);
  if (file.size() < sizeof length || length > std::min<uint64_t>(file.size() - sizeof length, kMostHeader)) {
    refuse("no safetensors file, or a truncated one");
  }
  const std::string_view header = file.substr(sizeof length, length);
  if (!is_utf8(header)) refuse("the header is not UTF-8");
  Json json(header);
  const std::string_view data = file.substr(sizeof length + length);
  std::map<std::string, StoredTensor> out;
  json.object([&](const std::string& name) {
    if (name == "__metadata__") return json.object([&](const std::string&) { json.text(); });
    if (!out.emplace(name, tensor(json, name, data)).second) refuse("two tensors have the name " + name);
  });
  json.expect_end();
  return out;
}

}  // namespace shlo_disc
