"""Contexts in Python threads and in forked processes."""

import os
import threading

import numpy

import hark

ROWS = numpy.random.default_rng(2).standard_normal((1, 2, 64, 8)).astype("f4")


def test_python_threads_have_contexts_of_their_own():
    expected = hark.attention(ROWS, ROWS, ROWS)
    equal = []

    def work():
        equal.extend(numpy.array_equal(hark.attention(ROWS, ROWS, ROWS), expected) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert equal == [True] * 80


def test_a_forked_process_computes():
    expected = hark.attention(ROWS, ROWS, ROWS)
    child = os.fork()
    if child == 0:
        os._exit(0 if numpy.array_equal(hark.attention(ROWS, ROWS, ROWS), expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
