#include "machine.h"
namespace ptx { void add_async(Table&) {} }
