// What the Python module has for machine code: its loader, and what it depends on.
#ifndef SHLO_DISC_RAL_MODULE_CODE_H_
#define SHLO_DISC_RAL_MODULE_CODE_H_

#include <nanobind/nanobind.h>

namespace shlo_disc {

void bind_code(nanobind::module_& m);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_MODULE_CODE_H_
