"""MLIR and the StableHLO dialect: everything that knows operations and no facts about sizes."""
