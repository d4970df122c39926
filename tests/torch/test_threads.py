"""`torch.set_num_threads` holds for programs of shlo_disc, too."""

import torch

from shlo_disc import ral
from tests.children import python

CODE = """
    import torch
    import shlo_disc.torch
    from shlo_disc import ral
    from torch.export import Dim, export

    class Double(torch.nn.Module):
        def forward(self, x):
            return x * 2

    x = torch.randn(2000, 1000)
    exported = shlo_disc.torch.compile(export(Double(), (x,), dynamic_shapes=({0: Dim("b")},)))
    compiled = torch.compile(Double(), backend="shlo_disc", dynamic=True)
    started = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        for run in (exported, compiled):
            assert torch.equal(run(x.t().contiguous().t()), x * 2)
            assert torch.equal(run(x), x * 2)
        started.append(ral.threads_started())
    assert ral.limit_threads(0) == 0  # other programs of this thread take all of them
    print(*started)
"""


def test_the_pool_has_no_thread_where_pytorch_takes_one():
    assert python(CODE, SHLO_DISC_NUM_THREADS="4") == "False True"


def test_a_call_leaves_no_limit():
    run = torch.compile(lambda x: x * 2, backend="shlo_disc", dynamic=True)
    assert torch.equal(run(torch.ones(5)), torch.full((5,), 2.0))
    assert ral.limit_threads(0) == 0


OTHER_MEMORY = """
    import threading
    import torch
    import shlo_disc.torch
    from torch.export import Dim, export

    class Double(torch.nn.Module):
        def forward(self, x):
            return x * 2

    torch.set_num_threads(1)
    n = 1200  # so large that freed memory goes back to the system
    x = torch.ones(n, n)
    dims = ({0: Dim("a"), 1: Dim("b")},)
    run = shlo_disc.torch.compile(export(Double(), (x,), dynamic_shapes=dims))
    stop, results = threading.Event(), []

    def change():
        count = 0
        while not stop.wait(0.001):
            count += 1
            if count % 2:
                x.set_(torch.ones(n + count % 3, n))
            else:
                x.data = torch.ones(n - count % 3, n)

    def call():
        for _ in range(20):
            y = run(x)
            results.append(torch.equal(y, torch.full_like(y, 2)))

    threads = [threading.Thread(target=each) for each in [change] + [call] * 8]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    stop.set()
    threads[0].join()
    print(len(results), all(results))
"""


def test_eight_threads_read_what_a_tensor_had_while_another_gives_it_other_memory():
    """In a child: the memory that a call read was freed, which ended the process."""
    assert python(OTHER_MEMORY, timeout=300) == "160 True"
