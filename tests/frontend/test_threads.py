"""Threads that derive programs from each other's: none waits in a circle."""

import functools
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

import shlo_disc

X = np.float32([0.5, 1, 2])


class Pair:
    """Two functions; while JAX derives the gradient of one, a rule takes a batch of the other."""

    def __init__(self, before=lambda: None):
        self.before = before
        """Called by a rule, before it asks for the batch."""
        functions = [shlo_disc.jit(self._function(k)) for k in range(2)]
        # As programs that call ours: a call in a rule would become a part of what is derived.
        self.outer = [jaxpr_as_fun(jax.make_jaxpr(f)(X)) for f in functions]

    def _function(self, number):
        @jax.custom_jvp
        def base(x):
            return jnp.sin(x)

        @base.defjvp
        def _(primals, tangents):
            self.before()
            (other,) = jax.vmap(self.outer[1 - number])(jnp.stack([X, X]))
            return base(*primals), tangents[0] * other.sum()

        def function(x):
            return base(x).sum()

        return function

    def gradient(self, number):
        return jax.grad(lambda x: self.outer[number](x)[0])(X)


EXPECTED = np.full(3, 2 * np.sin(X).sum())


def run(*tasks):
    """The results of tasks, each in a thread; fails if they do not end."""
    results = [None] * len(tasks)

    def work(k, task):
        results[k] = task()

    threads = [threading.Thread(target=work, args=each, daemon=True) for each in enumerate(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"
    return results


def test_two_rules_that_need_each_others_programs():
    meeting = threading.Barrier(2)
    inside = threading.local()

    def meet():
        """Both threads are in a rule, and so hold the locks of a program."""
        if not getattr(inside, "was", False):
            inside.was = True
            meeting.wait(30)

    pair = Pair(meet)
    for result in run(lambda: pair.gradient(0), lambda: pair.gradient(1)):
        np.testing.assert_allclose(result, EXPECTED, rtol=1e-5)


def test_many_threads_on_two_programs():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        pair = Pair()
        tasks = [functools.partial(pair.gradient, k % 2) for k in range(6)]
        for result in run(*tasks):
            np.testing.assert_allclose(result, EXPECTED, rtol=1e-5)
    finally:
        sys.setswitchinterval(before)
