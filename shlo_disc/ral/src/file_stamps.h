// Which files a folder has, as far as their sizes and times tell.
#ifndef SHLO_DISC_RAL_FILE_STAMPS_H_
#define SHLO_DISC_RAL_FILE_STAMPS_H_

#include <string>

namespace shlo_disc {

// Path, size and time of every file below `folder` whose name ends with ".py" or ".so", in the order
// of their paths. Throws std::system_error.
std::string file_stamps(const std::string& folder);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FILE_STAMPS_H_
