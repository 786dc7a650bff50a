"""hark.runs: configurations and metrics of runs as plain dicts and columns."""

import json
import os
import subprocess
from typing import Dict, List, Union

from ._models import Model, flatten, load
from ._train import command


class Run:
    """A run's folder. ``path``, ``name``; ``configuration``: dotted keys and values; ``metrics``: columns by word."""

    def __init__(self, path: str):
        self.path, self.name = path, os.path.basename(os.path.normpath(path))

    def __repr__(self):
        return f"<hark run {self.path}>"

    @property
    def configuration(self) -> Dict[str, object]:
        """The resolved configuration: {"model.layers": 4, ...}. It is read by the command, which knows hark's YAML."""
        done = subprocess.run(
            [command(), "config", "--config", os.path.join(self.path, "config.yaml"), "--json"], capture_output=True, text=True
        )
        if done.returncode:
            raise ValueError(f"runs: {done.stderr.strip()}")
        return flatten(json.loads(done.stdout))

    @property
    def lines(self) -> List[Dict[str, object]]:
        """The lines of metrics.jsonl (docs/formats.md); an unfinished last line of a running process is left out."""
        with open(os.path.join(self.path, "metrics.jsonl")) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    @property
    def metrics(self) -> Dict[str, List[object]]:
        """Columns of equal lengths, one entry for each line, None where a line does not have the word: pandas.DataFrame(run.metrics)."""
        lines = self.lines
        words = list(dict.fromkeys(word for line in lines for word in line))
        return {word: [line.get(word) for line in lines] for word in words}

    def column(self, word: str):
        """(steps, values) of the lines that have the word, ready for matplotlib's plot(*run.column("val/loss"))."""
        pairs = [(line["step"], line[word]) for line in self.lines if line.get(word) is not None]
        if not pairs:
            raise KeyError(f"runs: {self.path} has no metric {word!r}")
        return [step for step, _ in pairs], [value for _, value in pairs]

    def load(self, checkpoint=None) -> Model:
        """The model: hark.load(run.path, checkpoint)."""
        return load(self.path, checkpoint)


def runs(folder: Union[str, os.PathLike]) -> List[Run]:
    """The runs in a folder and the folders in it, by path; the folder itself where it is a run. Raises FileNotFoundError."""
    folder = os.fspath(folder)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"runs: there is no folder {folder}")
    found = []
    for path, folders, files in os.walk(folder):
        if "config.yaml" in files and "metrics.jsonl" in files:
            found.append(path)
            folders.clear()
    return [Run(path) for path in sorted(found)]
