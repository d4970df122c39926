"""TensorFlow, torch-mlir and shlo_disc in one process, in every order; and without JAX."""

import itertools

import pytest

from tests.children import python

LINES = {
    "tensorflow": "import tensorflow as tf",
    "shlo_disc": "import shlo_disc",
    "compiled": (
        "import shlo_disc; text = 'func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> '"
        "'{ %y = stablehlo.tanh %x : tensor<?xf32> return %y : tensor<?xf32> }'; "
        "import numpy; print(shlo_disc.compile(text).run_numpy([numpy.zeros(3, 'f')])[0].sum())"
    ),
    "torch_mlir": "import shlo_disc.ir.mlir",
}

ORDERS = [order for order in itertools.permutations(LINES, 2) if "tensorflow" in order]

USED = """
import tensorflow as tf
import shlo_disc.tensorflow
run = shlo_disc.tensorflow.compile(lambda x: tf.nn.softmax(x @ tf.ones((8, 8))),
                                   [tf.TensorSpec([None, 8])])
print(float(tf.reduce_sum(run(tf.ones((3, 8))))))
print(float(tf.function(lambda x: x + 1, jit_compile=True)(tf.constant(1.0))))
try:
    shlo_disc.compile("module { foo }")
except shlo_disc.InvalidModuleError:
    print("malformed")
"""


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_any_order(order):
    said = python("\n".join([*(LINES[name] for name in order), USED]))
    assert said.splitlines()[-3:] == ["3.0", "2.0", "malformed"]


WITHOUT_JAX = """
import importlib.abc, sys

class Nothing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "jaxlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
"""


def test_jax_is_not_needed():
    python(WITHOUT_JAX + USED)
