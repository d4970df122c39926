"""Tests of `shlo_disc.tensorflow`; they need the extra `tensorflow`: make test-tensorflow."""
