import subprocess
import sys

import pytest

from evaluator.datasets.staicc import load_staicc

HEAVY = {"torch", "vllm", "transformers", "numba", "altair", "scipy"}


def python(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


LIGHT = ["import evaluator", "import evaluator.cli.main", "import evaluator.engine", "import evaluator.runs.state"]


@pytest.mark.parametrize("line", LIGHT)
def test_nothing_heavy_is_imported_before_it_is_used(line):
    assert python(f"import sys; {line}; print(sorted({HEAVY} & set(sys.modules)))") == "[]"


def test_the_help_of_the_command_does_not_wait_for_tables():
    script = "import atexit, sys; atexit.register(lambda: print({'numpy', 'polars', 'pyarrow'} & {*sys.modules}));"
    script += "import evaluator.cli.main as cli; sys.argv[1:] = ['--help']; cli.main()"
    assert python(script).endswith("set()")


def test_a_small_run_imports_no_large_library_that_it_does_not_need(tmp_path):
    load_staicc("sst5")  # its file is converted once, with pandas where that is installed
    words = ["run", "staicc-normal", "--datasets", "sst5", "--queries", "2", "--out", str(tmp_path / "out")]
    words += ["--model", "fake", "--engine", "fake"]
    unneeded = {*HEAVY, "pandas", "scipy.optimize", "scipy.stats"} - {"altair", "scipy"}
    script = f"""if True:
        import atexit, sys
        atexit.register(lambda: print({unneeded} & {{*sys.modules}}))
        import evaluator.cli.main as cli
        sys.argv[1:] = {words!r}
        cli.main()
    """
    assert python(script).endswith("set()")
    assert (tmp_path / "out" / "report.html").is_file()


def test_the_help_of_a_command_with_options_of_suites_does_not_wait_for_optimisers():
    imported = "from evaluator.suites import SUITES; import sys; [*map(SUITES.get, SUITES)]"
    assert python(f"{imported}; print('scipy.optimize' in sys.modules)") == "False"


def test_our_kernels_do_not_hide_the_public_package_of_that_name():
    # transformers uses the package `kernels` where it is installed; our folder of that name must not be taken for it.
    script = "import transformers, evaluator_kernels; from importlib.util import find_spec; spec = find_spec('kernels')"
    assert python(f"{script}; print(spec and spec.origin)") == "None"
