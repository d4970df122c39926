"""ONNX Runtime and PyTorch beside ours: a process of its own, in an environment of its own.

`make peers` makes the environment (`.venv-peers`). `server.py` runs there and knows nothing of JAX;
`client.py` runs with the benchmarks and asks it to time one system after the other, so that all
systems take turns on an otherwise idle machine.
"""
