"""Memory of the stand-in's GPU, as a program in C has it."""

import ctypes

from shlo_disc_runtime.library import POINTER, Array, check, library


class Card:
    """Memory and streams of the stand-in, as a C program has them of the driver."""

    def __init__(self, driver):
        self.driver, self.held = driver.library, []
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)

    def call(self, name, *given):
        assert getattr(self.driver, name)(*given) == 0, name

    def memory(self, array):
        """The address of a copy of `array` on the device."""
        address = ctypes.c_void_p()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(array.nbytes, 1)))
        ctypes.memmove(address.value, array.ctypes.data, array.nbytes)
        self.held.append(address)
        return address.value

    def stream(self):
        made = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(made), 1)
        return made

    def wait(self, stream):
        self.call("cuStreamSynchronize", stream)

    def close(self):
        for address in self.held:
            self.call("cuMemFree_v2", address)
        self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


def rows_of(card, arrays):
    """Arguments of a program in memory of the device."""
    numbers = {"bool": 0, "float32": 11, "int32": 3, "float64": 12}
    rows = (Array * len(arrays))()
    for row, array in zip(rows, arrays, strict=True):
        row.data, row.dtype, row.rank = card.memory(array), numbers[array.dtype.name], array.ndim
        row.sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
    return rows


def enqueue(program, stream, rows, results):
    """`disc_program_enqueue`."""
    function = library().disc_program_enqueue
    function.restype, function.argtypes = POINTER, [
        POINTER, POINTER, POINTER, ctypes.c_size_t, POINTER, ctypes.c_size_t,
    ]  # fmt: skip
    check(function(program._handle, stream, rows, len(rows), results, len(results)))
