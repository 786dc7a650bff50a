"""hark's imported models have the logits of transformers, and its exports are models of transformers.

    bench/peers/models.py --hark build/hark --library build/libhark.so --folder build/peers/models

Makes small models of each type with random weights (grouped key heads, windows shorter than the text, biases, tied and separate embeddings,
scaled rotary positions, shards, numbers of several types), and compares for each: the logits of hark, which reads the folder, with those of
transformers in f32; those of transformers, which reads the folder that hark exports, with the same bits of all weights; the text that a
tokenizer.json gives; and the loss of a text, before and after a training by hark, and the text up to the end token. Needs torch, transformers, tokenizers (requirements.txt) and a libhark.so (-DHARK_SHARED=ON).
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

TOLERANCE = 1e-5  # of logits of size 1
TOKENS = 23

ROWS = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
BASE = {**ROWS, "num_key_value_heads": 2, "max_position_embeddings": 64}
GPT2 = {"vocab_size": 61, "n_positions": 40, "n_embd": 32, "n_layer": 3, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}

CASES = {
    "gpt2": ("GPT2", GPT2, {}),
    "gpt2_wide": ("GPT2", {**GPT2, "n_inner": 40, "activation_function": "gelu", "tie_word_embeddings": False}, {}),
    "gpt2_bf16": ("GPT2", GPT2, {"dtypes": [torch.bfloat16]}),
    "llama": ("Llama", BASE, {}),
    "llama_tied": ("Llama", {**BASE, "tie_word_embeddings": True, "num_key_value_heads": 1, "head_dim": 12}, {}),
    "llama_attention_bias": ("Llama", {**BASE, "attention_bias": True, "rms_norm_eps": 1e-4}, {}),
    "llama_mlp_bias": ("Llama", {**BASE, "mlp_bias": True}, {}),
    "llama_biases": ("Llama", {**BASE, "attention_bias": True, "mlp_bias": True}, {}),
    "llama3": ("Llama", {**BASE, "rope_parameters": {"rope_theta": 5000.0, **LLAMA3}}, {}),
    "llama_yarn": ("Llama", {**BASE, "rope_parameters": {"rope_theta": 10000.0, **YARN}}, {}),
    "llama_linear": ("Llama", {**BASE, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "linear", "factor": 2.0}}, {}),
    "llama_gelu": ("Llama", {**BASE, "hidden_act": "gelu"}, {}),
    "llama_gelu_tanh": ("Llama", {**BASE, "hidden_act": "gelu_pytorch_tanh"}, {}),
    "llama_mixed": ("Llama", BASE, {"dtypes": [torch.bfloat16, torch.float32, torch.float16], "shard": "8KB"}),
    "mistral": ("Mistral", {**BASE, "sliding_window": 5}, {}),
    "mistral_full": ("Mistral", {**BASE, "sliding_window": None, "head_dim": 6}, {}),
    "qwen2": ("Qwen2", BASE, {}),
    "qwen2_window": ("Qwen2", {**BASE, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}, {"shard": "20KB"}),
    "qwen2_tied": ("Qwen2", {**BASE, "tie_word_embeddings": True}, {}),
}


def make(folder, kind, settings, extra, seed):
    """A model of transformers with random weights, in its own folder."""
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(**settings)
    model = getattr(transformers, {"GPT2": "GPT2LMHeadModel"}.get(kind, f"{kind}ForCausalLM"))(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            is_scale = p.dim() == 1 and name.endswith("weight")
            p.copy_(torch.randn_like(p) * 0.15 + (1 if is_scale else 0))
            if "dtypes" in extra:  # numbers that the types can hold
                p.copy_(p.to(torch.bfloat16).to(torch.float16).float())
    model.save_pretrained(folder, **({"max_shard_size": extra["shard"]} if "shard" in extra else {}))
    if "dtypes" in extra:
        number = 0
        for path in sorted(folder.glob("*.safetensors")):
            tensors = load_file(path)
            for name in tensors:
                tensors[name] = tensors[name].to(extra["dtypes"][number % len(extra["dtypes"])])
                number += 1
            save_file(tensors, path, metadata={"format": "pt"})
    return model


def logits(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float().numpy()


def run(*words):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {result.stderr}")
    return result.stdout


def check(hark, name, kind, settings, extra, folder, command):
    model = make(folder / "in", kind, settings, extra, seed=len(name))
    tokens = numpy.random.default_rng(3).integers(0, settings["vocab_size"], TOKENS).tolist()
    expected = logits(model, tokens)
    scale = max(1.0, float(numpy.abs(expected).max()))
    worst = {"folder": numpy.abs(hark.load(folder / "in").logits(tokens) - expected).max() / scale}
    run(command, "import", folder / "in", "--output", folder / "own.safetensors")
    worst["file"] = numpy.abs(hark.load(folder / "own.safetensors").logits(tokens) - expected).max() / scale
    run(command, "export", folder / "own.safetensors", "--format", "huggingface", "--output", folder / "out")
    again = type(model).from_pretrained(folder / "out", dtype=torch.float32).eval()
    worst["export"] = numpy.abs(logits(again, tokens) - expected).max() / scale
    before, after = model.state_dict(), again.state_dict()
    same = before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)
    bad = [what for what, x in worst.items() if not x <= (0 if what == "export" else TOLERANCE)]
    print(f"{name:22} " + "  ".join(f"{what} {x:.1e}" for what, x in worst.items()) + ("  weights equal" if same else "  WEIGHTS DIFFER"))
    return not bad and same


def check_text(hark, folder, command):
    """The tokens and the text of a model with a byte-level tokenizer.json."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(["the cat and the hat", "größer als gross"] * 9, trainer)
    make(folder, "GPT2", {**GPT2, "vocab_size": tokenizer.get_vocab_size()}, {}, seed=1)
    tokenizer.save(str(folder / "tokenizer.json"))
    model, text = hark.load(folder), "the größte hat 😀"
    ids = model.tokenizer.encode(text)
    same = list(ids) == tokenizer.encode(text).ids and model.tokenizer.decode(ids) == text
    written = run(command, "generate", folder, "--prompt", "the", "--max-new-tokens", 5, "--temperature", 0)
    print(f"{'tokenizer.json':22} {'tokens and text equal' if same else 'TEXT DIFFERS'}, {written.strip()!r}")
    return same and written.startswith("the")


def byte_level():
    """A tokenizer.json with an end token, as GPT-2 has it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return tokenizer


TEXT = "".join(f"the {'black' if i % 3 else 'größere'} cat saw {i * i} hats{'.' if i % 2 else ', and'}\n" for i in range(150))


def loss(model, ids, length):
    """The mean loss of all targets, in windows that do not overlap."""
    total = 0.0
    for at in range(0, len(ids) - 1, length):
        window = torch.tensor(ids[at : at + length + 1])
        with torch.no_grad():
            scores = model(window[None, :-1]).logits[0].double()
        total += torch.nn.functional.cross_entropy(scores, window[1:], reduction="sum").item()
    return total / (len(ids) - 1)


def hark_loss(command, path, text, *words):
    return json.loads(run(command, "eval", path, "--data", text, "--json", "--threads", 1, *words))


def check_loss(kind, settings, folder, command):
    """hark eval, hark train --init-from with its export, and the end token."""
    tokenizer, length = byte_level(), 32
    name = "n_positions" if kind == "GPT2" else "max_position_embeddings"
    settings = {**settings, "vocab_size": tokenizer.get_vocab_size() + 3, name: length, "bos_token_id": None, "eos_token_id": None}
    model = make(folder / "in", kind, settings, {}, seed=5)
    tokenizer.save(str(folder / "in" / "tokenizer.json"))
    text, again = folder / "text.txt", type(model).from_pretrained
    text.write_text(TEXT)
    ids = tokenizer.encode(TEXT).ids
    measured = hark_loss(command, folder / "in", text)
    worst = {"eval": abs(measured["loss"] - loss(model, ids, length))}
    worst["bits"] = abs(measured["bits_per_byte"] - measured["loss"] * len(ids) / len(TEXT.encode()) / numpy.log(2))
    (folder / "tokens.bin").write_bytes(numpy.array(ids, dtype="<u2").tobytes())
    worst["tokens"] = abs(hark_loss(command, folder / "in", folder / "tokens.bin")["loss"] - measured["loss"])
    tuned = folder / "run"
    words = ["--steps", 20, "--batch", 4, "--lr", 3e-3, "--warmup", 0, "--threads", 1]
    run(command, "train", "--init-from", folder / "in", "--data", text, "--out", tuned, *words)
    after = hark_loss(command, tuned, text)["loss"]
    run(command, "export", tuned, "--format", "huggingface", "--output", folder / "out")
    worst["export"] = abs(after - loss(again(folder / "out", dtype=torch.float32).eval(), ids, length))
    # the second token that the model writes without chance becomes its end token
    prompt = tokenizer.encode("the cat").ids
    written = model.generate(torch.tensor([prompt]), max_new_tokens=6, do_sample=False, pad_token_id=0)[0, len(prompt) :].tolist()
    model.generation_config.eos_token_id = [written[1], 1]
    model.generation_config.save_pretrained(folder / "in")
    said = json.loads(run(command, "generate", folder / "in", "--prompt", "the cat", "--temperature", 0, "--max-new-tokens", 6, "--json"))
    ends = said["ended"] and said["tokens"] == written.index(written[1])
    good = all(x <= TOLERANCE for x in worst.values()) and after < measured["loss"] and ends
    print(f"{'loss of ' + kind:22} " + "  ".join(f"{what} {x:.1e}" for what, x in worst.items()), end="")
    print(f"  {measured['loss']:.3f} to {after:.3f} after 20 steps  {'the end token ends' if ends else 'NO END'}")
    return good


def check_bert(folder, command):
    """An export of BERT is the model that was imported, for transformers and with the files of sentence-transformers."""
    torch.manual_seed(9)
    settings = {**ROWS, "max_position_embeddings": 20, "type_vocab_size": 2}
    model = transformers.BertModel(transformers.BertConfig(**settings)).eval()
    model.save_pretrained(folder / "in")
    (folder / "in" / "sentence_bert_config.json").write_text('{"max_seq_length": 12, "do_lower_case": false}')
    run(command, "import", folder / "in", "--output", folder / "own.safetensors")
    run(command, "export", folder / "own.safetensors", "--format", "huggingface", "--output", folder / "out")
    again = transformers.BertModel.from_pretrained(folder / "out").eval()
    before, after = model.state_dict(), again.state_dict()
    same = before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)
    tokens = torch.arange(15)[None] % 61
    with torch.no_grad():
        same = same and torch.equal(model(tokens).last_hidden_state, again(tokens).last_hidden_state)
    limit = json.loads((folder / "out" / "sentence_bert_config.json").read_text())["max_seq_length"]
    print(f"{'bert':22} {'export equal' if same else 'EXPORT DIFFERS'}, max_seq_length {limit}")
    return same and limit == 12


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hark", default="build/hark")
    parser.add_argument("--library", default="build/libhark.so")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/peers/models"))
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    arguments = parser.parse_args()
    os.environ["HARK_LIBRARY"] = str(pathlib.Path(arguments.library).resolve())
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
    import hark

    transformers.logging.set_verbosity_error()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    good = [check(hark, name, *CASES[name], arguments.folder / name, arguments.hark) for name in arguments.cases]
    good.append(check_text(hark, arguments.folder / "text", arguments.hark))
    for kind, settings in [("GPT2", GPT2), ("Llama", BASE), ("Qwen2", {**BASE, "tie_word_embeddings": True})]:
        good.append(check_loss(kind, settings, arguments.folder / f"loss_{kind}", arguments.hark))
    good.append(check_bert(arguments.folder / "bert", arguments.hark))
    print(f"{sum(good)} of {len(good)} agree with transformers {transformers.__version__}")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
