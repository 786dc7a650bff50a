"""hark.train: the trainer of the command, with a callback for progress."""

import json
import os
import signal
import subprocess
import tempfile
import time
from typing import Callable, Dict, Optional, Union


def command() -> str:
    """The path of the program hark: in the package, or where HARK_COMMAND names it, or of a checkout that was built."""
    here = os.path.dirname(os.path.abspath(__file__))
    for path in (os.environ.get("HARK_COMMAND"), os.path.join(here, "bin", "hark"), os.path.join(here, "..", "..", "build", "hark")):
        if path and os.path.isfile(path):
            return path
    raise FileNotFoundError("hark: the program hark was not found; install the package, or name it in HARK_COMMAND")


_EXCEPTIONS = {2: ValueError, 3: ValueError, 4: OSError, 5: MemoryError, 6: FloatingPointError, 7: RuntimeError, 8: RuntimeError}


class _Metrics:
    """New complete lines of a file that another process writes."""

    def __init__(self, path: str):
        self._path, self._read = path, os.path.getsize(path) if os.path.isfile(path) else 0

    def lines(self):
        if not os.path.isfile(self._path):
            return
        with open(self._path, "rb") as file:
            self._resynchronise(file)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                yield json.loads(line)

    def _resynchronise(self, file) -> None:
        """Goes to what was not read. A resumed run first cuts the file to its checkpoint: then to the beginning of the line that is there."""
        size = file.seek(0, os.SEEK_END)
        self._read = min(self._read, size)
        file.seek(max(self._read - 1, 0))
        if self._read and file.read(1) != b"\n":
            file.seek(0)
            self._read = file.read(self._read).rfind(b"\n") + 1
        file.seek(self._read)


def _arguments(config: str, out: str, options: Dict[str, object]):
    arguments = [command(), "train", "--out", out, *(["--config", config] if config else [])]
    for key, value in options.items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            arguments += [f"--{flag}", str(value)]
    return arguments


def _stop(process) -> None:
    """Asks the trainer to write a checkpoint and end; a second interrupt ends it."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait()
    except KeyboardInterrupt:
        process.kill()
        process.wait()


def train(
    config: Union[str, os.PathLike, Dict[str, object], None],
    out: Union[str, os.PathLike],
    *,
    resume: bool = False,
    progress: Optional[Callable[[Dict[str, object]], None]] = None,
    **options,
):
    """Trains a model as ``hark train`` does, and returns its run (hark.runs).

    config: a YAML file, or a dict of dotted keys of docs/configuration.md, {"model.layers": 4, "data.paths": ["book.txt"]}; None with
    resume. out: the run's folder. options: flags of the command with underscores, such as steps=100; they have precedence. progress: is
    called with every new line of metrics.jsonl, a dict; an exception that it raises stops the training after a checkpoint.

    Ctrl-C raises KeyboardInterrupt after a checkpoint; resume=True continues such a run. Raises ValueError (configuration, data), OSError,
    MemoryError, FloatingPointError, RuntimeError (the folder is in use), with the command's message.
    """
    from ._runs import Run

    out = os.fspath(out)
    metrics = _Metrics(os.path.join(out, "metrics.jsonl"))
    with tempfile.TemporaryFile("w+") as messages, tempfile.NamedTemporaryFile("w", suffix=".yaml") as written:
        if isinstance(config, dict):
            json.dump(config, written)  # JSON is YAML
            written.flush()
            config = written.name
        arguments = _arguments(os.fspath(config) if config else "", out, options) + (["--resume"] if resume else [])
        # A session of its own: Ctrl-C reaches this process alone, which passes it on.
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=messages, start_new_session=True)
        try:
            while process.poll() is None:
                time.sleep(0.05)
                for line in metrics.lines():
                    if progress:
                        progress(line)
        except BaseException:
            _stop(process)
            raise
        messages.seek(0)
        text = messages.read().strip()
    for line in metrics.lines():
        if progress:
            progress(line)
    if process.returncode:
        raise _EXCEPTIONS.get(process.returncode, RuntimeError)(f"train: {text or process.returncode}")
    return Run(out)
