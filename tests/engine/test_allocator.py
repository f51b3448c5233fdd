"""Memory that tensors leave is there for the next ones, and is returned when it is asked for."""

import subprocess
import sys

import psutil
import pytest

if not psutil.LINUX:
    pytest.skip("mallopt is glibc's", allow_module_level=True)

PROGRAM = """
import resource, psutil, torch
from evaluator.engine.allocator import keep_freed_memory, return_freed_memory

MIB = 2**20
keep_freed_memory()

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


def test_tensors_take_the_memory_of_earlier_ones_until_it_is_returned():
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    page_faults, returned_bytes = map(int, done.stdout.split())
    assert page_faults < 1000  # by default nearly all pages of every layer, 16,384 each
    assert returned_bytes > 60 * 2**20
