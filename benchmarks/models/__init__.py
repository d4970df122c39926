"""Models in plain JAX, as people write them; nothing here knows shlo_disc.

Every module has `init(seed)`, the parameters; `inputs(*shape, seed)`; `function(params, *inputs)`;
and `SHAPES`.
"""
