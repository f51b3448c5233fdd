import subprocess
import sys

import pytest


@pytest.mark.parametrize("line", ["import evaluator", "import evaluator.cli", "import evaluator.engine"])
def test_nothing_heavy_is_imported_before_it_is_used(line):
    script = f"import sys; {line}; print(sorted({{'torch', 'vllm', 'transformers', 'numba', 'altair'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_our_kernels_do_not_hide_the_public_package_of_that_name(tmp_path):
    # transformers uses the package `kernels` where it is installed; our folder of that name must not be taken for it.
    script = "import transformers, evaluator_kernels, importlib.util as u; s = u.find_spec('kernels'); print(s and s.origin)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"
