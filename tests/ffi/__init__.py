"""XLA FFI targets called from compiled programs: LAPACK, and targets of the user's."""
