"""hark.train, hark.runs, hark.load: a small run of text and one of labelled examples, against the command."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest
from _files import COMMAND, write
from test_interrupt import interrupted

import hark
from hark import _library, _models
from hark._models import _Decoding, read_safetensors
from hark._train import _Metrics

os.environ.setdefault("HARK_COMMAND", COMMAND)
TEXT = (
    "".join(f"the {a} {b} sees {c}.\n" for a in ("small", "old", "red") for b in ("dog", "cat", "bird", "fish") for c in ("it", "me", "us"))
    * 20
)
SMALL = {"model.layers": 2, "model.width": 32, "model.heads": 2, "model.context": 32, "train.steps": 10, "train.batch": 4}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def run(text):
    lines = []
    run = hark.train({**SMALL, "data.paths": [str(text)]}, text.parent / "run", progress=lines.append)
    assert [line["step"] for line in lines] == [line["step"] for line in run.lines]
    return run


def test_runs_are_found(run):
    (found,) = hark.runs(os.path.dirname(run.path))
    assert found.path == run.path
    assert found.configuration["model.layers"] == 2
    columns = found.metrics
    assert {len(column) for column in columns.values()} == {len(found.lines)}
    steps, losses = found.column("train/loss")
    assert len(steps) == len(losses) > 0
    with pytest.raises(KeyError, match="nothing"):
        found.column("nothing")
    with pytest.raises(FileNotFoundError):
        hark.runs("no/such/folder")


def test_model_of_a_run(run):
    model = hark.load(run.path)
    assert model.info["architecture"] == "decoder" and model.tokenizer.kind == "characters"
    tokens = model.tokenizer.encode("the old cat")
    assert model.tokenizer.decode(tokens) == "the old cat"
    assert model.logits(tokens).shape == (11, model.info["vocabulary"])
    weight = model.weights["embedding.token.weight"]
    assert weight.shape == (model.info["vocabulary"], 32) and not weight.flags.writeable and not weight.flags.owndata
    with pytest.raises(ValueError, match="U\\+4E2D"):
        model.tokenizer.encode("\u4e2d")


@pytest.mark.parametrize("kind", ["int8", "bf16", "f16"])
def test_weights_of_a_compact_export(run, tmp_path, kind):
    torch = pytest.importorskip("torch")
    path = tmp_path / "model.safetensors"
    subprocess.run([COMMAND, "export", run.path, "--type", kind, "--output", str(path)], check=True, capture_output=True)
    model, weights = hark.load(path), hark.load(run.path).weights
    assert set(model.weights) == set(weights)
    for name, array in model.weights.items():
        assert array.dtype == "f4" and not array.flags.writeable
        numpy.testing.assert_allclose(array, weights[name], atol=0.01 * abs(weights[name]).max())
    tokens = model.tokenizer.encode("the old cat sees it.")
    found = model.to_torch()(torch.tensor(tokens, dtype=torch.long)[None])[0]
    logits = model.logits(tokens)  # of int8: the library rounds the inputs of products too
    numpy.testing.assert_allclose(found.detach().numpy(), logits, atol=(0.03 if kind == "int8" else 1e-4) * abs(logits).max())


@pytest.fixture(scope="module")
def folder(text):
    """A folder of another program, with matrices in f32."""
    llama = {"model.positions": "rotary", "model.norm": "rms_norm", "model.activation": "gated_silu"}
    run = hark.train({**SMALL, **llama, "train.steps": 1, "data.paths": [str(text)]}, text.parent / "llama")
    command = [COMMAND, "export", run.path, "--format", "huggingface", "--output", str(text.parent / "folder")]
    subprocess.run(command, check=True, capture_output=True)
    return text.parent / "folder"


@pytest.fixture(scope="module")
def shards(folder):
    """The same folder, in two shards."""
    tensors, path = read_safetensors(folder / "model.safetensors")[1], folder.parent / "shards"
    path.mkdir()
    (path / "config.json").write_bytes((folder / "config.json").read_bytes())
    map_of_names = {name: f"{i % 2}.safetensors" for i, name in enumerate(tensors)}
    for file in ("0.safetensors", "1.safetensors"):
        write(path / file, {name: x for name, x in tensors.items() if map_of_names[name] == file})
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": map_of_names}))
    return path


@pytest.mark.parametrize("weights", [None, "file", "int8"])
@pytest.mark.parametrize(
    "name", ["folder", "folder/config.json", "folder/model.safetensors", "shards", "shards/model.safetensors.index.json"]
)
def test_weights_of_another_program_are_those_of_its_files(folder, shards, weights, name):
    model = hark.load(folder.parent / name, weights=weights)
    assert model.file == str(shards if "shards" in name else folder / "model.safetensors")
    assert model.info["matrices"] == (weights or "f32").replace("file", "f32")
    numbers = read_safetensors(folder / "model.safetensors")[1]
    assert model.description["norm"] == "rms_norm" and model.description["layers"] == 2
    assert numpy.array_equal(model.weights["embedding.token.weight"], numbers["model.embed_tokens.weight"])
    assert {x.size for x in model.weights.values()} <= {x.size for x in numbers.values()} | {sum(x.size for x in numbers.values())}


def test_an_imported_file_is_read_directly(folder, tmp_path, monkeypatch):
    path = tmp_path / "imported"
    subprocess.run([COMMAND, "import", str(folder), "--output", str(path)], check=True, capture_output=True)
    monkeypatch.setattr(_models, "_save", None)  # nothing is written
    models = [hark.load(path, weights=weights) for weights in (None, "int8")]
    stored = read_safetensors(path)[1]
    for model in models:
        assert model.file == str(path) and model.description["norm"] == "rms_norm"
        assert set(model.weights) == set(stored) and not any(x.flags.owndata for x in model.weights.values())
        assert all(numpy.array_equal(x, stored[name]) for name, x in model.weights.items())


def test_a_description_needs_no_weights(run, monkeypatch):
    monkeypatch.setattr(_models, "read_safetensors", None)
    assert hark.load(run.path).description["layers"] == 2


def test_integers_without_scales_are_refused(tmp_path):
    header = json.dumps({"w": {"dtype": "I8", "shape": [1, 8], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(ValueError, match="w.scale"):
        read_safetensors(tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.0}, {"top_k": 3, "seed": 5}, {"top_p": 0.7, "context": 40}, {"min_p": 0.3, "seed": 7}]
)
def test_generation_is_that_of_the_command(run, options):
    options = {"seed": 3, **options}
    flags = [
        x
        for name, value in options.items()
        if not (name == "seed" and options.get("temperature") == 0)
        for x in (f"--{name.replace('_', '-')}", str(value))
    ]
    done = subprocess.run(
        [COMMAND, "generate", run.path, "--prompt", "the ", "--max-new-tokens", "90", "--json", *flags], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    pieces = list(hark.load(run.path).generate("the ", max_new_tokens=90, **options))
    assert "".join(pieces) == json.loads(done.stdout)["text"]


def test_min_p_leaves_tokens_out(run):
    model = hark.load(run.path)
    likely = list(model.generate_tokens("the ", max_new_tokens=20, temperature=0.0))
    drawn = [list(model.generate_tokens("the ", max_new_tokens=20, temperature=2.0, seed=seed, min_p=p)) for seed in (1, 2) for p in (0, 1)]
    assert likely == drawn[1] == drawn[3] and likely != drawn[0] != drawn[2]
    with pytest.raises(ValueError, match="min_p"):
        next(model.generate("the ", min_p=1.5))


@pytest.mark.parametrize("weights", ["file", "f32", "bf16", "f16", "int8"])
@pytest.mark.parametrize("stored", ["f32", "int8"])
def test_generation_with_compact_weights_is_that_of_the_command(run, tmp_path, weights, stored):
    path = tmp_path / "model.safetensors"
    subprocess.run([COMMAND, "export", run.path, "--type", stored, "--output", str(path)], check=True, capture_output=True)
    command = [COMMAND, "generate", str(path), "--prompt", "the ", "--max-new-tokens", "60", "--seed", "4", "--json", "--weights", weights]
    expected = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["text"]
    model = hark.load(path, weights=weights)
    assert model.info["matrices"] == (stored if weights == "file" else weights)
    tokens = list(model.generate_tokens("the ", max_new_tokens=60, seed=4))
    assert len(tokens) == 60 and model.tokenizer.decode(tokens) == expected


def test_weights_change_the_logits_and_not_the_arrays(run):
    models = [hark.load(run.path, weights=weights) for weights in (None, "f32", "bf16", "int8")]
    logits = [model.logits("the old cat") for model in models]
    assert numpy.array_equal(logits[0], logits[1])
    for other in logits[2:]:
        assert not numpy.array_equal(other, logits[0])
        numpy.testing.assert_allclose(other, logits[0], atol=0.05 * abs(logits[0]).max())
    assert all(numpy.array_equal(models[3].weights[name], array) for name, array in models[0].weights.items())
    for wrong, kind in (("f8", ValueError), (8, TypeError), (["f32"], TypeError)):
        with pytest.raises(kind, match="weights is .*, expected file, f32"):
            hark.load(run.path, weights=wrong)


DECODERS = {
    "plain": {},
    "learned": {
        "model.positions": "learned",
        "model.norm": "rms_norm",
        "model.activation": "gated_silu",
        "model.bias": True,
    },
    "hierarchical": {
        "model.positions": "sinusoidal",
        "model.rotary.base": 500,
        "model.tie_embeddings": False,
        "model.attention.structure": "hierarchical",
        "model.attention.hierarchy_block": 4,
        "model.attention.hierarchical_bias": True,
    },
    "positional": {"model.positional": "decay*periodic", "model.positional_scope": "head", "model.key_heads": 1},
    "gated_gelu": {"model.activation": "gated_gelu"},
    "gated_gelu_tanh": {"model.activation": "gated_gelu_tanh"},
    "window": {
        "model.positional": "decay",
        "model.attention.structure": ["window", "dense"],
        "model.attention.window": 5,
        "model.attention.forget_gate": True,
    },
    "contextual": {"model.positions": "none", "model.attention.contextual_positions": 6, "model.key_heads": 1},
    "rotary": {"model.rotary.learned": "head", "model.rotary.pairs": "interleaved", "model.attention.kernel": "rbf"},
}


@pytest.mark.parametrize("options", DECODERS.values(), ids=DECODERS)
def test_torch_module_of_a_decoder(text, tmp_path, options):
    torch = pytest.importorskip("torch")
    run = hark.train({**SMALL, **options, "data.paths": [str(text)]}, tmp_path / "run")
    model = run.load()
    tokens = model.tokenizer.encode("the old cat sees it.\nthe red ")
    found = model.to_torch()(torch.tensor(tokens, dtype=torch.long)[None])[0]
    numpy.testing.assert_allclose(found.detach().numpy(), model.logits(tokens), atol=1e-5)


def test_torch_module_refuses_options_that_it_lacks(run, monkeypatch):
    pytest.importorskip("torch")
    model = run.load()
    for key, value in {"norm_place": "post", "new_option": 0.5}.items():
        described = {**model.description, key: value}
        with monkeypatch.context() as patch:
            patch.setattr(type(model), "description", property(lambda self, described=described: described))
            with pytest.raises(ValueError, match=f"model.{key} {value!r}"):
                model.to_torch()


@pytest.mark.parametrize(
    "pooling, positional, options",
    [
        ("class", "", {}),
        ("mean", "", {}),
        ("first", "", {}),
        ("mean", "left(decay)*right(rbf)", {}),
        ("mean", "left(decay)|right(rbf)", {}),
        ("mean", "", {"structure": "hierarchical", "hierarchy_block": 2, "interpolation": "linear"}),
    ],
)
def test_torch_module_of_an_encoder(tmp_path, pooling, positional, options):
    torch = pytest.importorskip("torch")
    generator = numpy.random.default_rng(0)
    lines = [f"{int(row.sum() > 10)}\t{''.join('ab'[x] for x in row)}" for row in generator.integers(0, 2, (200, 20))]
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
    config = {
        **SMALL,
        **{f"model.attention.{key}": value for key, value in options.items()},
        "model.architecture": "encoder",
        "model.pooling": pooling,
        "model.positional": positional,
        "data.format": "text",
        "data.tokenizer": "bytes",
        "data.paths": [str(tmp_path / "train.tsv")],
    }
    run = hark.train(config, tmp_path / "run")
    model = run.load()
    texts = ["abba" * 5, "bbba" * 5]
    predicted = model.predict(texts)
    assert predicted.shape == (2, 2)
    tokens = torch.tensor(numpy.stack([model.tokenizer.encode(x) for x in texts]), dtype=torch.long)
    numpy.testing.assert_allclose(model.to_torch()(tokens).detach().numpy(), predicted, atol=1e-5)


def test_wrong_calls(run, tmp_path):
    with pytest.raises(FileNotFoundError):
        hark.load(tmp_path / "nothing")
    (tmp_path / "damaged.safetensors").write_bytes(b"12345678" * 4)
    with pytest.raises(ValueError):
        hark.load(tmp_path / "damaged.safetensors")
    model = hark.load(run.path)
    with pytest.raises(TypeError, match="tokens"):
        model.logits([1.5])
    with pytest.raises(TypeError, match="texts"):
        model.predict("text")
    with pytest.raises(ValueError, match="temperature"):
        next(model.generate("the ", temperature=-1.0))
    with pytest.raises(ValueError, match="layers"):
        hark.train({"model.layers": -1}, tmp_path / "run")


def test_an_exception_of_the_callback_stops_the_training(text, tmp_path):
    def stop(line):
        raise StopIteration

    with pytest.raises(StopIteration):
        hark.train({**SMALL, "train.steps": 100000, "data.paths": [str(text)]}, tmp_path / "run", progress=stop)
    assert os.path.isfile(tmp_path / "run" / "checkpoints" / (tmp_path / "run" / "last").read_text().strip() / "manifest.json")


def test_lines_of_a_file_that_was_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [b'{"step": %d}\n' % step for step in (1, 2, 300, 4, 50000)]
    path.write_bytes(b"".join(lines[:3]))
    metrics = _Metrics(str(path))
    path.write_bytes(lines[0])  # cut to the checkpoint
    assert list(metrics.lines()) == []
    path.write_bytes(lines[0] + lines[1])
    assert list(metrics.lines()) == [{"step": 2}]
    path.write_bytes(b"".join(lines[:3]))
    metrics = _Metrics(str(path))
    path.write_bytes(lines[0] + lines[4] + lines[4])  # cut and already longer: the old end is inside a line
    assert list(metrics.lines()) == [{"step": 50000}]
    assert list(metrics.lines()) == []


def test_a_generation_goes_on_in_another_thread(run):
    model = hark.load(run.path)
    expected = list(model.generate_tokens("the ", max_new_tokens=20))
    tokens = model.generate_tokens("the ", max_new_tokens=20)
    first, rest = [next(tokens)], []
    with _Decoding(model, 0) as one, _Decoding(model, 0) as other:
        handles = {one.context.handle.value, other.context.handle.value, _library.context().handle.value}
        assert len(handles) == 3
    thread = threading.Thread(target=lambda: rest.extend(tokens))
    thread.start()
    thread.join()
    assert first + rest == expected


def test_a_handler_that_raises_nothing_lets_the_prompt_be_read(run, monkeypatch):
    model, came, calls = hark.load(run.path), [], []
    expected = list(model.generate_tokens("the ", max_new_tokens=3))

    def prefill(*arguments):
        """Cancelled once for every length."""
        calls.append(arguments[2])
        return _library.CANCELLED if len(calls) % 2 else real(*arguments)

    real = _models._prefill
    monkeypatch.setattr(_models, "_prefill", prefill)
    previous = signal.signal(signal.SIGINT, lambda *_: came.append(1))
    try:
        found = list(model.generate_tokens("the ", max_new_tokens=3))
    except KeyboardInterrupt:  # it would end the tests
        found = None
    finally:
        signal.signal(signal.SIGINT, previous)
    assert found == expected and calls == [4, 4, 1, 1, 1, 1] and len(came) == 3
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            next(model.generate_tokens("the "))
    finally:
        signal.signal(signal.SIGINT, previous)


def test_a_prompt_is_read_in_spite_of_a_real_interruption(run):
    program = f"""
import signal, hark
came = []
signal.signal(signal.SIGINT, lambda *_: came.append(1))
model, prompt = hark.load({run.path!r}), "the old cat sees it. " * 200
expected = next(model.generate_tokens(prompt, context=8192))
print("begins", flush=True)
while not came:
    assert next(model.generate_tokens(prompt, context=8192)) == expected
print(len(came))
"""
    assert interrupted(program).split() == ["begins", "1"]


def test_interrupted_training_continues(text, tmp_path):
    program = f"""
import hark, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background commands ignore it
try:
    config = {{**{SMALL!r}, "train.steps": 1000000, "data.paths": [{str(text)!r}]}}
    hark.train(config, {str(tmp_path / "run")!r}, progress=lambda line: print(line["step"], flush=True))
except KeyboardInterrupt:
    print("interrupted")
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    assert "interrupted" in child.communicate(timeout=60)[0]
    reached = int((tmp_path / "run" / "last").read_text().strip().removeprefix("step-"))
    run = hark.train(None, tmp_path / "run", resume=True, steps=reached + 5)
    assert run.lines[-1]["step"] == reached + 5
