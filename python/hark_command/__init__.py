"""The command ``hark`` of the package: replaces the Python process by the program in ``hark/bin``.

A package of its own, so that the command starts without NumPy.
"""

import os
import sys


def main() -> None:
    """Runs the program with the arguments of this process."""
    program = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "hark", "bin", "hark")
    if not os.path.isfile(program):
        sys.exit(f"hark: there is no program {program}; this package was installed without the command")
    os.execv(program, ["hark", *sys.argv[1:]])
