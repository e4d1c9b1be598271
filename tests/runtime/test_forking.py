"""A fork while another thread compiles: the child compiles too."""

import os
import subprocess
import sys

import pytest

FORK = """
import os, signal, threading, time
import stax, stax.numpy as snp

def compiled(i):
    return float(stax.jit(lambda x: snp.sin(x * i).sum())(snp.ones(8)))

compiled(0)
going = True

def compile_on():
    i = 0
    while going:
        i += 1
        compiled(i)

thread = threading.Thread(target=compile_on)
thread.start()
codes = []
for k in range(5):
    time.sleep(0.007)
    child = os.fork()
    if not child:
        signal.alarm(20)
        compiled(-k)
        os._exit(0)
    codes.append(os.waitpid(child, 0)[1])
going = False
thread.join()
print(codes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_another_thread_compiles() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True
    )
    assert done.stdout.split() == str([0] * 5).split(), done.stderr
