// The Python module shlo_disc.ral._ral.
#include <nanobind/nanobind.h>

NB_MODULE(_ral, m) { m.doc() = "The runtime of shlo_disc (use shlo_disc.ral)."; }
