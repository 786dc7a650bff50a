"""hark embed against transformers' BertModel: the same embeddings, and sentences per second.

    embed.py --hark build/hark --check                      random small models: embeddings within 1e-5
    embed.py --hark build/hark --model FOLDER               a published model (all-MiniLM-L6-v2) on sentences: differences and speed
    embed.py --hark build/hark --model FOLDER --speed 2     on two threads, the best of all ways to run PyTorch in float32, and hark's types
    embed.py --hark build/hark --model FOLDER --long 2      texts of 512 and 4,096 tokens: dense, window and hierarchical attention

FOLDER is that of a model of sentence-transformers with tokenizer.json. PyTorch sorts sentences by length, so that its batches have little
padding, and the best of several sizes of batches counts; its time includes its tokenizer, as hark's does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import transformers
from tokenizers import Tokenizer

BOUND = 1e-5
WORDS = (
    "the a of and to in is was that it for on with as by at from his her they we you not are this be had have which one all there "
    "water house morning winter letter engine river history question answer measure city garden people music number light storm "
    "attention models sentences vectors embedding search distance small large quickly slowly never always because although"
).split()


def sentences(count, seed, shortest=3, longest=60):
    """Texts of words; their lengths are those of many sentences and some paragraphs."""
    random = numpy.random.default_rng(seed)
    lengths = numpy.clip(numpy.exp(random.normal(2.8, 0.6, count)).astype(int), shortest, longest)
    return [" ".join(random.choice(WORDS, n)) + "." for n in lengths]


def hark_embed(hark, model, lines, *options):
    with tempfile.TemporaryDirectory() as folder:
        text, output = os.path.join(folder, "lines.txt"), os.path.join(folder, "out.npy")
        with open(text, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        begin = time.perf_counter()
        subprocess.run([hark, "embed", model, text, "--format", "npy", "--output", output, *options], check=True)
        return numpy.load(output), time.perf_counter() - begin


def pooled(hidden, mask, pooling, normalise, pooler):
    if pooling == "mean":
        result = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    else:
        result = pooler if pooling == "pooler" else hidden[:, 0]
    return torch.nn.functional.normalize(result, dim=-1) if normalise else result


@torch.inference_mode()
def torch_embed(model, tokenizer, lines, pooling="mean", normalise=True, batch=32, by_length=True):
    """Embeddings in the order of the lines."""
    encoded = tokenizer.encode_batch(lines)
    order = sorted(range(len(lines)), key=lambda i: len(encoded[i].ids)) if by_length else list(range(len(lines)))
    out = torch.empty(len(lines), model.config.hidden_size)
    for at in range(0, len(order), batch):
        part = order[at : at + batch]
        longest = max(len(encoded[i].ids) for i in part)
        ids, mask = torch.zeros(len(part), longest, dtype=torch.long), torch.zeros(len(part), longest)
        for row, i in enumerate(part):
            ids[row, : len(encoded[i].ids)] = torch.tensor(encoded[i].ids)
            mask[row, : len(encoded[i].ids)] = 1
        result = model(input_ids=ids, attention_mask=mask, token_type_ids=torch.zeros_like(ids))
        out[part] = pooled(result.last_hidden_state, mask, pooling, normalise, result.pooler_output)
    return out.numpy()


def open_tokenizer(folder, longest):
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(longest)
    return tokenizer


def write_tokenizer(folder):
    """WordPiece over the words of the texts, as BERT's tokenizer.json."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({c for w in WORDS for c in w} | {"."})]
    vocabulary += [f"##{c}" for c in sorted({c for w in WORDS for c in w})] + [w for w in WORDS if len(w) > 1]
    ids = {word: number for number, word in enumerate(dict.fromkeys(vocabulary))}

    def special(word):
        return {"id": word, "ids": [ids[word]], "tokens": [word]}

    pieces = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": ids[w], "content": w, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for w in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
        ],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"[CLS]": special("[CLS]"), "[SEP]": special("[SEP]")},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
    }
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(pieces, file)
    return len(ids)


def write_modules(folder, pooling, normalise):
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")] + ([("2_Normalize", "Normalize")] if normalise else [])
    os.makedirs(os.path.join(folder, "1_Pooling"), exist_ok=True)
    with open(os.path.join(folder, "1_Pooling", "config.json"), "w", encoding="utf-8") as file:
        json.dump({"pooling_mode_cls_token": pooling == "first", "pooling_mode_mean_tokens": pooling == "mean"}, file)
    with open(os.path.join(folder, "modules.json"), "w", encoding="utf-8") as file:
        json.dump([{"idx": i, "path": path, "type": f"sentence_transformers.models.{kind}"} for i, (path, kind) in enumerate(modules)], file)


SMALL = [
    {"hidden_act": "gelu"},
    {"hidden_act": "gelu_new", "num_hidden_layers": 1, "type_vocab_size": 1},
    {"hidden_act": "relu", "layer_norm_eps": 1e-5, "num_attention_heads": 8},
    {"hidden_act": "silu", "hidden_size": 96, "num_attention_heads": 3, "intermediate_size": 100, "max_position_embeddings": 70},
]


def check_small(hark):
    worst = 0.0
    for number, changes in enumerate(SMALL):
        with tempfile.TemporaryDirectory() as folder:
            shape = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128, **changes}
            config = transformers.BertConfig(vocab_size=write_tokenizer(folder), **shape)
            torch.manual_seed(number)
            model = transformers.BertModel(config).eval()
            with torch.no_grad():  # deviations that make layers do something
                for name, parameter in model.named_parameters():
                    parameter.add_(torch.randn_like(parameter) * (0.1 if parameter.dim() == 1 else 0.08))
            model.save_pretrained(folder)
            pooling, normalise = [("mean", True), ("first", False)][number % 2]
            write_modules(folder, pooling, normalise)
            lines = [*sentences(50, number), "x", "", "a", *sentences(30, 100 + number, 30, 60)]
            tokenizer = open_tokenizer(folder, config.max_position_embeddings)
            cases = [((), pooling, normalise), (("--pooling", "pooler", "--no-normalise"), "pooler", False)]
            cases += [(("--pooling", "mean", "--normalise"), "mean", True), (("--batch-tokens", "70"), pooling, normalise)]
            for options, p, n in cases:
                mine, _ = hark_embed(hark, folder, lines, *options)
                theirs = torch_embed(model, tokenizer, lines, p, n, batch=16)
                alone = torch_embed(model, tokenizer, lines[:5], p, n, batch=1)
                difference = max(abs(mine - theirs).max(), abs(mine[:5] - alone).max())
                worst = max(worst, difference)
                print(f"small {number} {changes} {p}{' normalised' if n else ''} {' '.join(options)}: {difference:.2e}")
    return worst


def measure(name, count, run):
    run()
    best = min(time_of(run) for _ in range(3))
    print(f"  {name}: {count / best:.0f} sentences/s")
    return count / best


def time_of(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def compare_published(hark, folder, threads, speed):
    torch.set_num_threads(threads)
    model = transformers.BertModel.from_pretrained(folder).eval()
    tokenizer = open_tokenizer(folder, 256)
    lines = sentences(200, 1)
    mine, _ = hark_embed(hark, folder, lines, "--context", "256")
    difference = abs(mine - torch_embed(model, tokenizer, lines)).max()
    print(f"{os.path.basename(os.path.abspath(folder))}: 200 sentences, largest difference {difference:.2e}")
    if speed:
        many = sentences(1000, 2)
        tokens = sum(len(e.ids) for e in tokenizer.encode_batch(many))
        print(f"  {len(many)} sentences, {tokens / len(many):.1f} tokens each, {threads} threads")
        theirs = max(measure(f"PyTorch float32, batches of {b}", len(many), lambda b=b: torch_embed(model, tokenizer, many, batch=b)) for b in (8, 32))
        # The time of the process without loading: that of twice the text less that of the text.
        options = ("--threads", str(threads), "--context", "256")
        one, two = (min(hark_embed(hark, folder, many * n, *options)[1] for _ in range(3)) for n in (1, 2))
        ours = len(many) / (two - one)
        print(f"  hark embed: {ours:.0f} sentences/s ({len(many) / one:.0f} with loading the model), {ours / theirs:.2f} times PyTorch")
        exact, _ = hark_embed(hark, folder, many, *options)
        for words in (("--precision", "bf16"), ("--weights", "int8")):
            one, two = (min(hark_embed(hark, folder, many * n, *options, *words)[1] for _ in range(3)) for n in (1, 2))
            other, _ = hark_embed(hark, folder, many, *options, *words)
            cosines = (other * exact).sum(1) / numpy.linalg.norm(other, axis=1) / numpy.linalg.norm(exact, axis=1)
            print(
                f"  hark embed {' '.join(words)}: {len(many) / (two - one):.0f} sentences/s, largest difference {abs(other - exact).max():.1e},"
                f" smallest cosine {cosines.min():.5f}"
            )
    return difference


LONG = 4096
ATTENTIONS = [
    ("dense",),
    ("window", "--window", "256"),
    ("hierarchical", "--hierarchy-block", "16"),
    ("hierarchical", "--hierarchy-block", "64"),
]


def documents(count, tokenizer, tokens):
    """Texts of at least so many tokens, from the documents of this repository."""
    docs = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "docs")
    found = []
    for place, _, names in sorted(os.walk(docs)):
        for name in sorted(names):
            if name.endswith(".md"):
                with open(os.path.join(place, name), encoding="utf-8") as file:
                    found.append(" ".join(file.read().split()))
    words = " ".join(found).split(" ")
    texts, at = [], 0
    while len(texts) < count and at < len(words):
        texts.append(" ".join(words[at : at + tokens]))  # a word has at least one token
        at += tokens
    assert len(texts) == count and all(len(e.ids) == tokens for e in tokenizer.encode_batch(texts))
    return texts


def stretched(folder, to):
    """A copy of the model whose learned positions reach to LONG tokens, by linear interpolation."""
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, to)
    weights = load_file(os.path.join(to, "model.safetensors"))
    name = next(n for n in weights if n.endswith("embeddings.position_embeddings.weight"))
    weights[name] = torch.nn.functional.interpolate(weights[name].T[None], LONG, mode="linear", align_corners=True)[0].T.contiguous()
    weights = {n: w for n, w in weights.items() if not n.endswith("position_ids")}
    save_file(weights, os.path.join(to, "model.safetensors"), {"format": "pt"})
    for file, key in (("config.json", "max_position_embeddings"), ("sentence_bert_config.json", "max_seq_length")):
        with open(os.path.join(to, file), encoding="utf-8") as opened:
            values = json.load(opened)
        values[key] = LONG
        with open(os.path.join(to, file), "w", encoding="utf-8") as opened:
            json.dump(values, opened)


def compare_long(hark, folder, threads):
    with tempfile.TemporaryDirectory() as place:
        long = os.path.join(place, "long")
        stretched(folder, long)
        for path, tokens, count in ((folder, 512, 32), (long, LONG, 8)):
            texts = documents(count, open_tokenizer(path, tokens), tokens)
            dense = None
            print(f"{count} texts of {tokens} tokens, {threads} threads")
            for attention in ATTENTIONS:
                options = ("--context", str(tokens), "--threads", str(threads), "--structure", *attention)
                one, two = (min(hark_embed(hark, path, texts * n, *options)[1] for _ in range(3)) for n in (1, 2))
                found, _ = hark_embed(hark, path, texts, *options)
                dense = found if dense is None else dense
                cosines = (found * dense).sum(1)
                print(f"  {' '.join(attention)}: {(two - one) / count * 1e3:.0f} ms a text; cosine with dense {cosines.mean():.3f}, least {cosines.min():.3f}")
            between = dense @ dense.T
            print(f"  cosine of different texts, dense: {between[~numpy.eye(count, dtype=bool)].mean():.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hark", default="build/hark")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--model")
    parser.add_argument("--speed", type=int, default=0, metavar="THREADS")
    parser.add_argument("--long", type=int, default=0, metavar="THREADS")
    arguments = parser.parse_args()
    worst = check_small(arguments.hark) if arguments.check else 0.0
    if arguments.model:
        worst = max(worst, compare_published(arguments.hark, arguments.model, arguments.speed or 1, arguments.speed > 0))
        if arguments.long:
            compare_long(arguments.hark, arguments.model, arguments.long)
    print(f"largest difference {worst:.2e}, bound {BOUND:.0e}")
    sys.exit(0 if worst <= BOUND else 1)


if __name__ == "__main__":
    main()
