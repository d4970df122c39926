# Every target works in a fresh clone: it makes .venv and installs the project by itself.
# `make help` lists them. PYTHON=/path/to/python chooses the interpreter (3.11 to 3.13).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
RUN := $(VENV)/bin/python
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
SOURCES := pyproject.toml CMakeLists.txt $(wildcard $(addprefix shlo_disc/ral/,include/*.h src/*.* src/core/*.* src/capi/*.*))

export JAX_PLATFORMS ?= cpu

# Some images forbid .pyc files: every Python that a test starts would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help:  ## This list
	@sed -n 's/^\([a-z-]*\):.*##/\1:/p' $(MAKEFILE_LIST) | sed 's/:/ /' | awk '{name = $$1; sub(/^ *[^ ]+ +/, ""); printf "  %-12s %s\n", name, $$0}'

.PHONY: setup
setup: $(VENV)/.installed  ## Make .venv and install the project for development

$(VENV)/.installed: $(SOURCES) tools/venv.sh
	tools/venv.sh $(VENV) '.[test,libraries]'

$(VENV)/.installed-dev: $(VENV)/.installed
	tools/venv.sh $(VENV) '.[test,libraries,dev]'
	touch $@

.PHONY: demo
demo: $(VENV)/.installed  ## Compile BERT once and run it at 20+ shapes beside jax.jit
	$(RUN) examples/demo.py

.PHONY: train
train: $(VENV)/.installed  ## Train a small GPT of flax with batches of random shape
	$(RUN) examples/train_gpt.py

.PHONY: test
test: $(VENV)/.installed  ## The tests, without those marked slow
	$(RUN) -m pytest -q -n $(JOBS) --dist loadfile -m 'not slow'

.PHONY: test-all
test-all: $(VENV)/.installed  ## All tests, the slow ones too
	$(RUN) -m pytest -q -n $(JOBS)

.PHONY: test-slow
test-slow: $(VENV)/.installed  ## The slow tests alone (SAMPLE=1: some of each kind)
	$(RUN) -m pytest -q -n $(JOBS) -m slow $(if $(SAMPLE),$(SLOW_SAMPLE))

SLOW_SAMPLE := tests/libraries/test_train_gpt.py::test_losses_are_those_of_jax \
	tests/libraries/test_diffrax.py::test_fixed_steps \
	tests/frontend/test_device_training.py::test_training_on_four_devices \
	tests/frontend/test_fft.py::test_four_dimensions_and_cosines \
	tests/frontend/test_sharded.py::test_sharded \
	tests/models/test_repeated_calls.py::test_products_in_every_layout \
	tests/models/test_stacking.py::test_loops_in_loops \
	tests/models/test_repeated_calls.py::test_models \
	tests/benchmarks/test_models.py::test_model_agrees_with_float64[dien] \
	tests/libraries/test_linen.py::test_decoding_with_a_cache

.PHONY: rotation
rotation: $(VENV)/.installed .venv-torch/.installed  ## A twentieth of the slow tests and of PyTorch's, another one every day (PART=7)
	$(RUN) -m pytest -q -n $(JOBS) -m slow --part slow:$(or $(PART),today) --part-seconds 150 --part-record
	.venv-torch/bin/python -m pytest -q -n $(JOBS) -m torch --part torch:$(or $(PART),today) --part-seconds 60 --part-record $(TORCH_TESTS)

.PHONY: test-machine-code
test-machine-code: $(VENV)/.installed  ## What assemblers make of the kernels of GPUs: registers, nothing spilled
	$(RUN) -m pytest -q -n $(JOBS) -m slow $(addprefix tests/gpu/test_,resources.py block_resources.py assembled.py)

.PHONY: test-torch
test-torch: .venv-torch/.installed  ## The tests of shlo_disc.torch, in .venv-torch with PyTorch (SAMPLE=1: a part)
	.venv-torch/bin/python -m pytest -q -n $(JOBS) --dist loadfile -m '$(if $(SAMPLE),torch and not slow,torch)' \
		$(if $(SAMPLE),$(TORCH_SAMPLE),$(TORCH_TESTS))

TORCH_TESTS := tests/torch tests/ral/test_torch_tensors.py tests/artifacts/test_torch.py

# Export, backend, training and versions in three minutes of two cores.
TORCH_SAMPLE := $(addprefix tests/torch/test_,backend.py exported.py recurrent.py versions.py) tests/artifacts/test_torch.py

.PHONY: test-torch-models
test-torch-models: .venv-torch/.installed-models  ## Models of PyTorch's libraries (SAMPLE=1: small ones of transformers and timm)
	.venv-torch/bin/python -m pytest -q -m '$(if $(SAMPLE),torch and not slow,torch)' tests/torch/test_architectures.py \
		tests/torch/test_library_models.py

.venv-torch/.installed: $(SOURCES) tools/venv.sh
	tools/venv.sh .venv-torch '.[test,torch]'

.PHONY: test-tensorflow
test-tensorflow: .venv-tensorflow/.installed  ## The tests of shlo_disc.tensorflow, in .venv-tensorflow (SAMPLE=1: a part)
	.venv-tensorflow/bin/python -m pytest -q -n $(JOBS) --dist loadfile -m tensorflow \
		$(if $(SAMPLE),$(TENSORFLOW_SAMPLE),tests/tensorflow tests/artifacts/test_tensorflow.py)

# Half a minute of two cores.
TENSORFLOW_SAMPLE := $(addprefix tests/tensorflow/test_,compile.py versions.py) tests/artifacts/test_tensorflow.py

.venv-tensorflow/.installed: $(SOURCES) tools/venv.sh
	tools/venv.sh .venv-tensorflow '.[test,tensorflow]'

# timm asks for torchvision, whose wheel is a CUDA build: tests/torch/torchvision_names.py. So is that of
# torchaudio, of whose kernels no model needs one.
.venv-torch/.installed-models: .venv-torch/.installed
	.venv-torch/bin/python -m pip install --disable-pip-version-check --quiet transformers==5.23.0 pillow \
		diffusers==0.42.1 torch_geometric==2.8.1
	.venv-torch/bin/python -m pip install --disable-pip-version-check --quiet --no-deps timm==1.0.31 torchaudio==2.11.1
	rm -f .venv-torch/lib/python3*/site-packages/torchaudio/lib/_torchaudio.so
	touch $@

.PHONY: replay
replay: $(VENV)/.installed  ## Programs whose kernels or host programs have other texts than before
	$(RUN) tools/replay.py

.PHONY: sanitize
sanitize: $(VENV)/.installed  ## Tests with a runtime built for sanitizers of memory and of threads (SAMPLE=1: memory, a few; WHOLE=1: all)
	VENV=$(VENV) tools/sanitize.sh address $(if $(SAMPLE),$(SANITIZED_SAMPLE),$(if $(WHOLE),$(SANITIZED_WHOLE),$(SANITIZED)))
	$(if $(SAMPLE),,VENV=$(VENV) tools/sanitize.sh thread tests/ral/test_thread_pool.py tests/ral/test_buffer_pool.py \
		$(C_API)::test_every_function_and_every_error)

C_API := tests/artifacts/test_c_api.py
SANITIZED := tests/ral tests/ffi $(C_API) --deselect $(C_API)::test_many_damaged_artifacts

# Calls, memory, packed copies and handlers, in half a minute; the build takes 3 minutes of one core, once.
SANITIZED_SAMPLE := $(addprefix tests/ral/test_,array_kinds.py buffer_pool.py call.py ffi.py pack_cache.py packs_later.py \
	tensors.py weights.py)

SANITIZED_WHOLE := -m "not slow and not unsanitized" -n $(JOBS) --dist loadfile

.PHONY: trust
trust: $(VENV)/.installed .venv-torch/.installed  ## Programs of ../shared that went wrong once, beside jax.jit and PyTorch (TRUST=--all: all)
	$(RUN) tools/trust.py $(TRUST)

.PHONY: test-arm
test-arm: $(VENV)/.installed  ## Artifacts for AArch64 in qemu: 220 programs of others, 100 000 damaged object files
	tools/emulator.sh
	$(RUN) -m pytest -q tests/ral/test_arm_object_code.py tests/artifacts/test_emulated.py

.PHONY: acceptance
acceptance: $(VENV)/.installed  ## Programs of others, with their results, in ../shared (SAMPLE=60: so many; ARM=1: in qemu)
	$(RUN) tools/acceptance.py "$${SHLO_DISC_SHARED:-../shared}/acceptance" $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(ARM),--emulated)

.PHONY: fuzz
fuzz: $(VENV)/.installed  ## Random programs beside jax.jit (COUNT=3000; TEXT=1: StableHLO modules; GPU=1 or cuda:sm_80)
	$(RUN) -m tests.fuzz --count $(or $(COUNT),3000) --seed $(or $(SEED),0) -j $(JOBS) $(if $(TEXT),--stablehlo) \
		$(if $(GPU),--target $(GPU:1=cuda:sm_90a))

.PHONY: test-ends
test-ends: tools/venv.sh  ## The tests on both ends of the version ranges
	PYTHON="$${PYTHON_LOW:-3.11}" tools/venv.sh .venv-low '.[test]' jax==0.10.2 jaxlib==0.10.2
	.venv-low/bin/python -m pytest -q -n $(JOBS) --dist loadfile -m 'not slow'
	PYTHON="$${PYTHON_HIGH:-3.13 3.12}" tools/venv.sh .venv-high '.[test]' jax==0.12.0.1 jaxlib==0.12.0.1
	.venv-high/bin/python -m pytest -q -n $(JOBS) --dist loadfile -m 'not slow'

.PHONY: check
check: $(VENV)/.installed-dev  ## Style, types and documentation
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(RUN) tools/tables.py --check
	$(RUN) tools/differs.py --check
	$(MAKE) --no-print-directory docs

.PHONY: peers
peers: .venv-peers/.installed  ## .venv-peers: PyTorch, ONNX Runtime, IREE and TVM for `make bench`

.venv-peers/.installed: $(wildcard benchmarks/peers/*requirements.txt) tools/venv.sh
	tools/venv.sh .venv-peers $(addprefix -r ,$(wildcard benchmarks/peers/*requirements.txt))

.PHONY: fix
fix: $(VENV)/.installed-dev  ## Format, and mend what ruff can
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(RUN) tools/tables.py
	$(RUN) tools/differs.py

.PHONY: docs
docs: $(VENV)/.installed-dev  ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

.PHONY: bench
bench: $(VENV)/.installed  ## The benchmarks; results go to benchmarks/results/
	$(RUN) -m benchmarks

.PHONY: bench-torch
bench-torch: .venv-torch/.installed-models benchmarks/peers/requirements.txt  ## Models of PyTorch beside eager, Inductor and ONNX Runtime (SUITES="torch_training ..."; default: all torch_*)
	.venv-torch/bin/python -m pip install --disable-pip-version-check --quiet -r benchmarks/peers/requirements.txt
	.venv-torch/bin/python -m benchmarks $(or $(SUITES),$(TORCH_SUITES))

TORCH_SUITES := $(addprefix torch_,overhead bert_jax models training first_call)

.PHONY: bench-tensorflow
bench-tensorflow: .venv-tensorflow/.installed  ## A BERT of Keras beside TensorFlow, with and without XLA
	.venv-tensorflow/bin/python -m benchmarks tensorflow_models

.PHONY: gpu-bundle
gpu-bundle: $(VENV)/.installed  ## build/gpu-bundle: what tools/on_gpu.sh needs on a GPU machine without registries
	$(RUN) tools/gpu_bundle.py

.PHONY: clean
clean:  ## Remove what was built, .venv too
	rm -rf .venv .venv-low .venv-high .venv-tensorflow .venv-torch build dist site
