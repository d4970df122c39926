"""One HTTP server twice: around an artifact, and around ONNX Runtime. Requests of random sizes."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from examples import bert as example

CLIENTS = 2
"""Threads that have a request each; the server has as many workers, of one thread each."""
_HEAD = b"\r\n\r\n"


def requests(count: int) -> Iterator[bytes]:
    """Requests of log-uniform sizes, batch 1 to 4, length 4 to 128."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        batch, length = np.exp(rng.uniform(np.log([1, 4]), np.log([5, 129]))).astype(int)
        ids = rng.integers(0, example.VOCABULARY, (batch, length), np.int32)
        body = ids.tobytes() + np.ones((batch, length), np.int32).tobytes()
        head = (
            f"POST /run?batch={batch}&time={length} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        yield head.encode() + body


class Server:
    """A running server; a context manager."""

    def __init__(self, command: Sequence[str], model: Path) -> None:
        self._process = subprocess.Popen(
            [*command, str(model), str(CLIENTS)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def latencies(self, given: Sequence[bytes]) -> tuple[np.ndarray, float]:
        """Milliseconds of each request, by clients that take turns; seconds of all."""
        times = np.zeros(len(given))
        failures: list[BaseException] = []

        def client(first: int) -> None:
            try:
                with socket.create_connection(("127.0.0.1", self._port)) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    for number in range(first, len(given), CLIENTS):
                        start = time.perf_counter()
                        answered(connection, given[number])
                        times[number] = (time.perf_counter() - start) * 1e3
            except (OSError, RuntimeError) as error:
                failures.append(error)

        threads = [threading.Thread(target=client, args=(k,)) for k in range(CLIENTS)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise RuntimeError(f"a client failed: {failures[0]}")
        return times, time.perf_counter() - start

    def result(self, request: bytes) -> np.ndarray:
        """What one request gives: flat float32."""
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            return np.frombuffer(answered(connection, request), np.float32)


def answered(connection: socket.socket, request: bytes) -> bytes:
    """The body of the answer to a request. Raises RuntimeError for a refusal."""
    connection.sendall(request)
    got = bytearray()
    while (end := got.find(_HEAD)) < 0:
        got += _received(connection, 1 << 16)
    head = got[:end].decode()
    if " 200 " not in head:
        raise RuntimeError(head.splitlines()[0])
    length = int(head.rsplit(": ", 1)[1])
    body = bytearray(length)
    there = len(got) - end - len(_HEAD)
    body[:there] = got[end + len(_HEAD) :]
    view = memoryview(body)
    while there < length:
        count = connection.recv_into(view[there:])
        if not count:
            raise RuntimeError("the server has gone")
        there += count
    return bytes(body)


def _received(connection: socket.socket, most: int) -> bytes:
    if data := connection.recv(most):
        return data
    raise RuntimeError("the server has gone")
