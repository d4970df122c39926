"""Functions outside the compiler that compiled programs call."""
