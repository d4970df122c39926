#include "container.h"

#include <algorithm>
#include <cstring>

namespace shlo_disc {
namespace {

constexpr char kManifest[] = "manifest.bin";
constexpr std::string_view kComment = "shlo_disc ";
constexpr size_t kCommentBytes = kComment.size() + 2 * sizeof(Digest);
constexpr size_t kMostMembers = 20000;
constexpr size_t kMostName = 255;
constexpr size_t kMostManifest = size_t{64} << 20;
constexpr size_t kMostPadding = 8192;

constexpr size_t kLocalBytes = 30;
constexpr size_t kCentralBytes = 46;
constexpr size_t kEndBytes = 22;

[[noreturn]] void refuse(const std::string& why) { throw ArtifactError(ArtifactError::kDamaged, why); }

// Numbers of a record of the file, one after the other.
class Record {
 public:
  Record(std::string_view file, size_t at, size_t bytes) {
    if (at > file.size() || file.size() - at < bytes) refuse("truncated");
    next_ = file.data() + at;
  }
  uint32_t u16() { return number<uint16_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  void expect16(uint32_t value, const char* what) {
    if (u16() != value) refuse(what);
  }
  void expect32(uint32_t value, const char* what) {
    if (u32() != value) refuse(what);
  }

 private:
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, next_, sizeof value);
    next_ += sizeof value;
    return value;
  }

  const char* next_;
};

// Of both headers of a member, which must tell the same.
struct Told {
  uint32_t crc, size;
  uint32_t name_bytes, extra_bytes;

  // The fields from the flags on.
  explicit Told(Record& record) {
    record.expect16(0, "a member is encrypted or streamed");
    record.expect16(0, "a member is compressed");
    record.u32();  // date and time
    crc = record.u32();
    size = record.u32();
    record.expect32(size, "a member is compressed");
    name_bytes = record.u16();
    extra_bytes = record.u16();
    if (name_bytes == 0 || name_bytes > kMostName) refuse("an unlikely name of a member");
    if (extra_bytes > kMostPadding) refuse("an unlikely header of a member");
  }
};

Digest digest_from(std::string_view hex) {
  Digest out;
  const auto value = [](char letter) -> unsigned {
    if (letter >= '0' && letter <= '9') return static_cast<unsigned>(letter - '0');
    if (letter >= 'a' && letter <= 'f') return static_cast<unsigned>(letter - 'a') + 10;
    refuse("the digest of the manifest is no number");
  };
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<uint8_t>(value(hex[2 * i]) * 16 + value(hex[2 * i + 1]));
  }
  return out;
}

}  // namespace

std::string_view artifact_in(std::string_view file) {
  constexpr std::string_view kMagic = "\x7f" "ELF";
  if (file.substr(0, kMagic.size()) != kMagic) return file;
  constexpr size_t kHeadBytes = 64, kSegmentBytes = 56;
  constexpr uint32_t kLoaded = 1;
  if (file.size() < kHeadBytes) refuse("a truncated shared library");
  const auto number = [file](size_t at, auto value) {
    std::memcpy(&value, file.data() + at, sizeof value);
    return value;
  };
  const size_t table = number(32, uint64_t{});
  const size_t count = number(54, uint16_t{}) == kSegmentBytes ? number(56, uint16_t{}) : 0;
  for (size_t i = 0; i < count; ++i) {
    if (table > file.size() || file.size() - table < (i + 1) * kSegmentBytes) break;
    const size_t at = table + i * kSegmentBytes;
    const size_t begin = number(at + 8, uint64_t{}), bytes = number(at + 32, uint64_t{});
    if (number(at, uint32_t{}) != kLoaded || begin > file.size() || file.size() - begin < bytes) continue;
    const std::string_view segment = file.substr(begin, bytes);
    if (segment.substr(0, 4) == "PK\3\4") return segment;
  }
  refuse("a shared library without an artifact");
}

Container::Container(std::string_view whole) {
  const std::string_view file = artifact_in(whole);
  if (file.size() < kEndBytes + kCommentBytes || file.substr(0, 4) != "PK\3\4") {
    refuse("no artifact of shlo_disc, or a truncated one");
  }
  const size_t end_at = file.size() - kEndBytes - kCommentBytes;
  Record end(file, end_at, kEndBytes);
  end.expect32(0x06054b50, "no artifact of shlo_disc, or a truncated one");
  end.expect32(0, "one of several files");
  const uint32_t count = end.u16();
  end.expect16(count, "one of several files");
  const size_t directory_bytes = end.u32();
  size_t directory = end.u32();
  end.expect16(kCommentBytes, "another comment");
  const std::string_view comment = file.substr(end_at + kEndBytes);
  if (comment.substr(0, kComment.size()) != kComment) refuse("no artifact of shlo_disc");
  if (count == 0 || count > kMostMembers) refuse("an unlikely number of members");
  if (directory > end_at || end_at - directory != directory_bytes) refuse("the directory is elsewhere");

  const std::string_view data = file.substr(0, directory);
  const std::string_view rows = file.substr(0, end_at);
  size_t at = 0;  // where the next member begins
  std::vector<std::string_view> names;
  for (uint32_t i = 0; i < count; ++i) {
    Record row(rows, directory, kCentralBytes);
    row.expect32(0x02014b50, "no row of the directory");
    row.u32();  // versions
    const Told told(row);
    row.expect16(0, "a comment of a member");
    row.expect16(0, "one of several files");
    row.u16();  // attributes
    row.u32();
    row.expect32(static_cast<uint32_t>(at), "members overlap, or have gaps between them");
    if (told.extra_bytes != 0) refuse("an unknown row of the directory");
    directory += kCentralBytes;
    if (end_at - directory < told.name_bytes) refuse("truncated");
    const std::string_view name = rows.substr(directory, told.name_bytes);
    directory += told.name_bytes;

    Record local(data, at, kLocalBytes);
    local.expect32(0x04034b50, "no header of a member");
    local.u16();
    const Told again(local);
    at += kLocalBytes;
    if (again.crc != told.crc || again.size != told.size || again.name_bytes != told.name_bytes) {
      refuse("two headers of a member differ");
    }
    const size_t head = again.name_bytes + again.extra_bytes;
    if (data.size() - at < head || data.size() - at - head < told.size) refuse("truncated");
    if (data.substr(at, name.size()) != name) refuse("two headers of a member differ");
    if (std::any_of(name.begin(), name.end(), [](char c) { return c < '!' || c > '~'; })) {
      refuse("an unlikely name of a member");
    }
    names.push_back(name);
    const Member member = {name, data.substr(at + head, told.size)};
    at += head + told.size;
    if (i != 0) {
      members_.push_back(member);
    } else if (name == kManifest && member.data.size() <= kMostManifest) {
      manifest_ = member.data;
    } else {
      refuse("no manifest, or too large a one");
    }
  }
  if (at != data.size() || directory != end_at) refuse("bytes that no member has");
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end()) refuse("two members of a name");
  if (blake2b(manifest_) != digest_from(comment.substr(kComment.size()))) {
    refuse("the manifest has a wrong digest");
  }
}

}  // namespace shlo_disc
