"""The most used functions of TensorFlow, several in one program: right at every size."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import shlo_disc.tensorflow
from tests.tensorflow.survey_arrays import ARRAYS
from tests.tensorflow.survey_models import MODELS

SIZES = [(3, 5, 9, 4), (1, 1, 1, 1), (4, 7, 6, 3), (0, 2, 3, 5), (5, 1, 11, 2)]

TOGETHER = 8
SURVEY = ARRAYS | MODELS
ORDER = list(SURVEY)
GROUPS = [tuple(ORDER[k : k + TOGETHER]) for k in range(0, len(ORDER), TOGETHER)]


def numbers(tensor):
    return tensor.numpy().astype(complex if tensor.dtype.is_complex else float)


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: f"{names[0]}-{names[-1]}")
def test_as_tensorflow(names):
    counts = [len(SURVEY[name].arguments) for name in names]
    ends = list(itertools.accumulate(counts, initial=0))

    def every(*arguments):
        parts = itertools.pairwise(ends)
        return {
            name: SURVEY[name].function(*arguments[start:end])
            for name, (start, end) in zip(names, parts, strict=True)
        }

    function = tf.function(every).get_concrete_function(
        *(spec for name in names for spec in SURVEY[name].specs())
    )
    run = shlo_disc.tensorflow.compile(function)
    for seed, sizes in enumerate(SIZES):
        arguments = [tf.constant(a) for name in names for a in SURVEY[name].values(sizes, seed)]
        got, want = run(*arguments), function(*arguments)
        for name in names:
            tolerance = SURVEY[name].tolerance
            for a, b in zip(tf.nest.flatten(got[name]), tf.nest.flatten(want[name]), strict=True):
                where = f"{name} at {sizes}"
                assert (a.dtype, a.shape) == (b.dtype, b.shape), where
                np.testing.assert_allclose(
                    numbers(a), numbers(b), rtol=tolerance, atol=tolerance, err_msg=where
                )
