"""Programs that JAX derives from one: derivatives, transposes, batches, blocks."""
