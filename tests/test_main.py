"""What a command changes for its whole process, in a process of its own each time; a Python program keeps its own."""

import subprocess
import sys

import psutil
import pytest


def python(program: str, **variables: str) -> list[str]:
    environment = psutil.Process().environ() | {"_RJEM_MALLOC_CONF": "", "POLARS_OOC_MEMORY_BUDGET_MB": ""} | variables
    environment = {name: value for name, value in environment.items() if value}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.splitlines()


HELP = """
import gc, os, sys
from evaluator.__main__ import main
sys.argv, sys.stdout = ["evaluator", "--help"], sys.stderr
try:
    main()
except SystemExit:
    # Polars puts its own settings before these.
    allocator = os.environ["_RJEM_MALLOC_CONF"].rsplit(",", 1)[-1]
    print(allocator, os.environ["POLARS_OOC_MEMORY_BUDGET_MB"], file=sys.__stdout__)
"""


def test_memory_of_tables_goes_back_to_the_system_and_sorts_spill() -> None:
    table_mb = min(max(psutil.virtual_memory().total // 25_000_000, 200), 1000)
    assert python(HELP) == [f"muzzy_decay_ms:0 {table_mb}"]


def test_settings_of_the_user_stay() -> None:
    assert python(HELP, _RJEM_MALLOC_CONF="muzzy_decay_ms:10", POLARS_OOC_MEMORY_BUDGET_MB="50") == [
        "muzzy_decay_ms:10 50"
    ]


LIBRARY = """
import gc, os
before = gc.get_threshold(), gc.collect
import evaluator
from evaluator.config import ModelConfig
from evaluator.engine import find_source, load_engine
config = ModelConfig(model="embedded", engine="transformers")
load_engine(find_source(config), config).close()
print((gc.get_threshold(), gc.collect) == before, gc.get_freeze_count(), os.environ.get("POLARS_OOC_MEMORY_BUDGET_MB"))
"""


def test_a_model_loaded_from_python_changes_nothing_for_the_process() -> None:
    assert python(LIBRARY) == ["True 0 None"]


COLLECTIONS = """
import gc, weakref
from evaluator.process import tune_process

class Cycle:
    def __init__(self):
        self.itself = self

tune_process()
old = weakref.ref(Cycle())
vllm = {"__name__": "vllm.v1.engine", "gc": gc}
gc.freeze()
gc.unfreeze()  # what was frozen belongs to the oldest generation
young = weakref.ref(Cycle())
exec("gc.collect()", vllm)
print(old() is None, young() is None)
gc.collect()
print(old() is None)
"""


def test_only_young_garbage_is_collected_for_vllm_and_all_for_others() -> None:
    assert python(COLLECTIONS) == ["False True", "True"]


FROZEN = """
import gc
from evaluator.process import leave_out_imports, tune_process

leave_out_imports()
print(gc.get_freeze_count())  # the process is not the command's
tune_process()
leave_out_imports()
imports = gc.get_freeze_count()
model = [[] for _ in range(10_000)]
leave_out_imports()
exec("gc.freeze(); gc.unfreeze()", {"__name__": "vllm.v1.engine", "gc": gc})
print(imports > 5000, imports - 100 < gc.get_freeze_count() <= imports)
"""


def test_imports_alone_are_left_out_of_collections_whatever_vllm_freezes() -> None:
    assert python(FROZEN) == ["0", "True True"]


TENSORS = """
import resource, psutil, torch
from evaluator.engine.devices import return_freed_memory
from evaluator.process import tune_process

MIB = 2**20
tune_process()

def layer():
    return [torch.empty(16 * MIB, dtype=torch.uint8).fill_(1) for _ in range(4)]

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(3):
    layer()
before = faults()
for _ in range(10):
    layer()
resident = psutil.Process().memory_info().rss
return_freed_memory()
print(faults() - before, resident - psutil.Process().memory_info().rss)
"""


@pytest.mark.skipif(not psutil.LINUX, reason="mallopt is glibc's")
def test_tensors_take_the_memory_of_earlier_ones_until_it_is_returned() -> None:
    page_faults, returned_bytes = map(int, python(TENSORS)[0].split())
    assert page_faults < 1000  # by default nearly all pages of every layer, 16,384 each
    assert returned_bytes > 60 * 2**20
