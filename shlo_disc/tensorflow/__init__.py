"""TensorFlow programs: compiled once, run at every size.

    run = shlo_disc.tensorflow.compile("saved_model_folder")
    run = shlo_disc.tensorflow.compile(function, [tf.TensorSpec([None, 8])])
    run(x)

Needs the extra `tensorflow`. JAX is not imported.
"""

from typing import TYPE_CHECKING

from shlo_disc.base.front_ends import Tested, check_tested, late_imports

if TYPE_CHECKING:
    from shlo_disc.tensorflow.program import TensorFlowExecutable, compile

__all__ = ["TensorFlowExecutable", "compile"]

check_tested(
    "tensorflow",
    [
        Tested("TensorFlow", "2.21", ("tensorflow-cpu", "tensorflow")),
        Tested("Keras", "3.15", ("keras",), needed=False),
    ],
)

__getattr__ = late_imports(
    __name__,
    {
        "TensorFlowExecutable": "shlo_disc.tensorflow.program",
        "compile": "shlo_disc.tensorflow.program",
    },
)
