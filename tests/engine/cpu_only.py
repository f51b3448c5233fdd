"""The mark of tests of what the engine does with vLLM on a CPU alone; `make test-gpu` skips them."""

import pytest

from evaluator.engine.devices import device_kind

cpu_only = pytest.mark.skipif(device_kind() != "cpu", reason="a fact about vLLM on a CPU")
