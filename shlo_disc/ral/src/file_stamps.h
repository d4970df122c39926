// Which files a folder has, as far as their sizes and times tell.
#ifndef SHLO_DISC_RAL_FILE_STAMPS_H_
#define SHLO_DISC_RAL_FILE_STAMPS_H_

#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>

namespace shlo_disc {

// Path, size and time of every file below `folder` whose name ends with ".py" or ".so", in the order
// of their paths. Throws std::system_error.
std::string file_stamps(const std::string& folder);

// The same, read by a thread of its own from now on: 700 files take 3 ms.
class LateFileStamps {
 public:
  explicit LateFileStamps(std::string folder);

  // Waits for the thread. Throws std::system_error.
  std::string get() const;

 private:
  struct Reading {
    std::promise<std::string> promise;
    std::atomic<bool> is_done{false};
  };

  std::string folder_;
  std::shared_ptr<Reading> reading_ = std::make_shared<Reading>();
  std::shared_future<std::string> found_ = reading_->promise.get_future();
  pid_t process_ = getpid();
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FILE_STAMPS_H_
