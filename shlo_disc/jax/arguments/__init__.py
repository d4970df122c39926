"""The arguments of a call: leaves, options, static and donated ones, stated shapes."""
