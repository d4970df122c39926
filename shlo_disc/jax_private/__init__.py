"""Every private name of JAX that shlo_disc uses, and what for.

The rest of shlo_disc imports them from these modules, so a new JAX version is one folder to check.
Tried with jax and jaxlib 0.10.2 (Python 3.11) and 0.12.0.1 (Python 3.12);
`tests/frontend/test_jax_private.py` holds each name to what is said of it here.

* `trace_context`: the part of `jax.config` a trace depends on (x64, matmul precision, ...), which
  belongs in cache keys.
* `checking`: a context of our own in JAX's cache keys (public `jax.make_user_context`).
* `usual_states`, `is_staging`, `is_transforming`, `numbers_sought`, `chosen_device`: is JAX
  tracing, looking for NaN, or told where results go; then a call takes Python.
  `unguarded_device_put`: results under a transfer guard.
* `closed_over`: the values of outer traces that a traced function reads (`Traced._consts`).
  `retyped`: such a value has another type while a function is traced (`Tracer.aval`);
  `are_plain`: it has nothing but a shape and a dtype.
* `named_axes`: the axes of outer programs that a jaxpr needs (`NamedAxisEffect`, `shard_map_p`).
  `batched_by`: a batching rule that is told the name of its axis.
* `is_export`: is a module lowered that `jax.export` keeps.
* `disable_jit`: `jax.disable_jit()` asks to run the function as Python.
* `ArrayImpl`: the one concrete array class; `type(x) is ArrayImpl` costs a fraction of isinstance.
* `shaped_array`, `batched_device_put`: NumPy memory as a jax.Array, without a copy and uncommitted.
* `enable_x64`: while it is off, `batched_device_put` halves 64-bit elements; see `wide_device_put`.
* `cpu_sharding`: the sharding of one device (public `SingleDeviceSharding`, kept).
* `order_on_stream`, `adopt_memory`, `rewrap`: arrays of a GPU (public `jax.dlpack` waits).
* `collect_garbage`: lets go of buffers whose arrays died in another thread.
* `KeyArray`, `prngs`: typed keys with their words, taken and made without a primitive's call.
* `is_known`, `prng_name`, `is_array`, `is_typed_number`, `says_nothing`,
  `trivially_placed`, `LEFT_TO_DERIVATIVES`: what a digest of a jaxpr must know (`PRNGImpl`,
  `literals`, `UnspecifiedValue`, `MemorySpace`); `jax.extend` has most primitives, `prng` those of
  keys. `extend` has its names, without Pallas.
* `key_impl`: `dtype._impl.name` of typed PRNG keys, to wrap raw results.
* `weakref_cache_key_types`: the types of parameters that JAX's caches hold weakly.
* `_canonicalize_dimension`: replaced for symbolic sizes, so that a trace leaves no reference cycle.
* `DimExpr`: the class of symbolic sizes; `jax/sizes/questions.py` answers what is asked of them.
  `SymbolicScope`: its subclass there adds constraints while a trace runs. `size_as_array`: a size
  as a traced number. `DecisionByElimination`, `Comparator`, `BEST`, `use_bounds`: the bounds of
  sizes, which `jax/sizes/bounds.py` finds. `use_form`, `size_of_terms`: the form in which JAX keeps
  and compares sizes, which `jax/sizes/forms.py` chooses. `JAX_TYPES`: callables whose C++ code
  hashes and compares sizes.
* `register_exclusion` (twice): our frames stay out of locations and tracebacks. `summarize`: the
  line of an equation.
* `Literal`: numbers in jaxprs, to compare two traces. `Var`, `is_jaxpr`:
  to take a jaxpr apart.
* `replace_functions`, `use_builtins`, `use_derivative_of_product`, `use_derivative_of_solve`,
  `use_index`, `use_numpy`: functions of JAX that want constant sizes
  (`jax/sizes/generic/generic.py`).
* `IndexSlice`: the class of `jax.ds`. `canonicalize_slice`: start, step and size of a Python slice.
* `parsed_module`: text as JAX's MLIR module, for `compiler_ir`.
* `check_by_jaxpr`: how `checkify` looks for errors inside a primitive of ours. `error_codes`: the
  numbers by which it tells errors apart, which two traces of a function compute with.
* `bind_equation`: runs one equation, at its source line.
* `on_many_devices`, `device_count`, `tiles_of`, `sharding_of_tiles`: `custom_partitioning` for an
  equation of ours, in the partitioner's own terms: which device has which tile of an array.
* `ffi_handlers`, `ffi_types`: the FFI targets XLA knows (`xla_client.custom_call_targets`), LAPACK
  among them, whose functions jaxlib takes from SciPy on first use (`jaxlib.lapack`). XLA does not
  tell the handlers of stages before the last one, nor how a state is deleted, nor of targets in the
  plugin of a GPU: `register_custom_call_target` and `register_custom_type` note those, and
  `_custom_callback` has the targets that wait for their backend.
* `qr_p`, `hessenberg_p`, `fft_p`: lowering rules for symbolic sizes. `reduce_window_p`: one
  without calls in reducers.
* `jaxprs_in_params`: nested jaxprs, to find every equation.
* `lower_whole`: what `jax.export.export` does first, `Traced.lower` for an export; the rest of it
  (a copy, a wrapper that solves sizes, checks, the artifact) took three times as long. `erfc` and
  `erf_inv` are left whole, by lowering rules of ours: serialising expands each into a hundred
  operations, slower and less exact than ours. `psum`, `pmax` and `pmin` over axes of `jax.vmap` get
  rules that take symbolic sizes. Callbacks become calls of ours by
  `emit_python_callback`, which every rule of a callback uses; JAX's takes no symbols and needs
  XLA's runtime. `HeldSizes`: the sizes that such a function of Python holds.
  `portable_artifact`: a module as `jax.export` serialises it. `put_back`: large constants, which
  `register_constant_handler` leaves beside a module, are in it again (`weights.py`). `is_large`:
  which constants these are.
* `platform_index_p` and `_cond_lowering`: what `lax.platform_dependent` makes.
* `constraints_of`: the relations of sizes that a scope was told.
* `auto_insert_reshard`, `standard_vma_rule`, `ManualAxisType`: what
  `shard_map` needs a primitive to say of its result; without it the gradient of `shard_map(f)` is
  silently wrong.
"""

from shlo_disc.jax_private import (  # noqa: F401 - all at once: some register at JAX
    arrays,
    callbacks,
    digests,
    ffi,
    functions,
    functions_with_sizes,
    jaxprs,
    lowering,
    meshes,
    modules,
    sizes,
    states,
    weights,
)
