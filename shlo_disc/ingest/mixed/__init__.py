"""Modules that mix StableHLO with `arith`, `math`, `shape` and `tensor` become StableHLO alone.

    main(%n: i64, %x: tensor<?x4xf32>)                  main(%n: tensor<i64>, %x: tensor<?x4xf32>)
      %d = tensor.dim %x, %c0                             %d = get_dimension_size %x, dim = 0
      %i = arith.index_cast %n : i64 to index      ==>
      %m = arith.muli %d, %i : index                      %m = multiply %d, %n : tensor<i64>
      %s = tensor.from_elements %m : tensor<1xindex>      %s = reshape %m : tensor<1xi64>

PyTorch and TensorFlow write sizes this way. A number is a rank-0 tensor and an `index` an i64; a
shape is an i64 vector. Conditions on shapes become assertions, which every call checks. What the
sizes are is not decided here: the shape analysis follows their arithmetic.

Each op has one rule, found by its name: :data:`take.RULES`.
"""
