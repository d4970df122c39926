#include "file_stamps.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace shlo_disc {
namespace {

struct Close {
  void operator()(DIR* folder) const { closedir(folder); }
};

[[noreturn]] void fail(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

bool is_code(std::string_view name) {
  const std::string_view end = name.substr(name.size() - std::min<size_t>(name.size(), 3));
  return end == ".py" || end == ".so";
}

void add(const std::string& path, std::vector<std::string>& stamps) {
  const std::unique_ptr<DIR, Close> folder(opendir(path.c_str()));
  if (!folder) fail(path);
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    const bool is_source = is_code(name);
    if (!is_source && (name == "." || name == ".." || name == "__pycache__")) continue;
    if (!is_source && entry->d_type == DT_REG) continue;
    struct stat found;
    if (fstatat(dirfd(folder.get()), entry->d_name, &found, 0) != 0) {
      if (errno == ENOENT) continue;  // it is gone, or a link to nothing, as editors make them
      fail(path);
    }
    const std::string below = path + "/" + entry->d_name;
    if (is_source) {
      const long numbers[] = {found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec};
      std::string stamp = below + '\0';
      stamp.append(reinterpret_cast<const char*>(numbers), sizeof(numbers));
      stamps.push_back(std::move(stamp));
    } else if (S_ISDIR(found.st_mode)) {
      add(below, stamps);
    }
  }
}

}  // namespace

std::string file_stamps(const std::string& folder) {
  std::vector<std::string> stamps;
  add(folder, stamps);
  std::sort(stamps.begin(), stamps.end());
  std::string out;
  for (const std::string& stamp : stamps) out += stamp;
  return out;
}

LateFileStamps::LateFileStamps(std::string folder) : folder_(std::move(folder)) {
  const auto read = [reading = reading_, folder = folder_] {
    try {
      reading->promise.set_value(file_stamps(folder));
    } catch (...) {
      reading->promise.set_exception(std::current_exception());
    }
    reading->is_done = true;
  };
  try {
    std::thread(read).detach();
  } catch (const std::system_error&) {  // no more threads
    read();
  }
}

std::string LateFileStamps::get() const {
  // A forked child has no such thread.
  const bool reads = getpid() == process_ || reading_->is_done;
  return reads ? found_.get() : file_stamps(folder_);
}

}  // namespace shlo_disc
