"""Programs cut into blocks along a symbol, for several devices."""
