"""Threads of hark.torch: PyTorch's number of them, its pool, forked workers."""

import os

import pytest

torch = pytest.importorskip("torch")
import hark.torch  # noqa: E402
from hark.torch import _threads  # noqa: E402


def rows(length=256):
    return [torch.randn(1, 4, length, 16, generator=torch.Generator().manual_seed(i)) for i in range(3)]


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_number_of_threads_is_that_of_pytorch(threads):
    from hark import _library

    results = []
    for count in (1, 2, 3):
        threads(count)
        assert _library.context_threads(_threads.context().handle) == count
        results.append(hark.torch.attention(*rows(), causal=True))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_no_threads_beside_those_of_pytorch(threads):
    """The process has as many threads after a call as after an operator of PyTorch."""
    if _threads.pool() != "pytorch":
        pytest.skip("this PyTorch's threads cannot be reached")
    import subprocess
    import sys

    program = """
import os, torch, hark.torch
torch.set_num_threads(3)
x = torch.randn(512, 512)
for _ in range(3): x.exp().sum(), x @ x
before = len(os.listdir("/proc/self/task"))
q = torch.randn(2, 8, 512, 32, requires_grad=True)
hark.torch.attention(q, q, q).sum().backward()
q.grad.sum()
print(before, len(os.listdir("/proc/self/task")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    # Autograd's own threads for a backward may start; hark starts none.
    assert after <= before + 1, done.stdout


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return hark.torch.attention(*rows(), causal=True).sum()


def test_workers_of_a_data_loader():
    expected = hark.torch.attention(*rows(), causal=True).sum()
    for worker in torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context="fork"):
        torch.testing.assert_close(worker[0], expected)


def test_a_forked_process_computes_in_several_threads():
    expected = hark.torch.attention(*rows(), causal=True)
    child = os.fork()
    if child == 0:
        same = False
        try:
            torch.set_num_threads(2)
            same = _threads.pool() == "hark" and bool((hark.torch.attention(*rows(), causal=True).numpy() == expected.numpy()).all())
        finally:
            os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
