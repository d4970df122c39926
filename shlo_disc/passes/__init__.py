"""Named passes over StableHLO and the disc dialect; the table is in `table.py`."""
