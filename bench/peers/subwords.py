"""hark's tokenizers and the Hugging Face tokenizers library give the same tokens for the same tokenizer.json, and the same text back.

Tokenizers like those of GPT-2, Llama, BERT, T5 and others are trained here on the texts of this repository and on generated lines of many
scripts, emoji, control characters and spaces. For each of them the tokens of --lines lines and the decoded texts are compared, one by one;
SentencePiece's own .model with SentencePiece's Python package. The other way round, vocabularies that hark trains (own-...) are exported as
tokenizer.json, and the library, hark from that file and hark from its own vocabulary must agree; the merges of byte-level BPE are compared with
those that the library's trainer learns from the same texts. --speed also measures: the library with encode_batch_fast on one thread, hark
tokenize with reading the file and printing the tokens, less its time for an empty file; the best of --repeats. The exit status is 1 where
anything differs.
"""

import argparse
import base64
import io
import json
import math
import os
import random
import shutil
import subprocess
import sys
import textwrap
import time
import unicodedata
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = Path(__file__).resolve().parent.parent.parent
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Ranges of characters, by script.
SCRIPTS = {
    "latin": [(0x41, 0x5A), (0x61, 0x7A)],
    "latin more": [(0xC0, 0x24F), (0x1E00, 0x1EFF)],
    "greek": [(0x391, 0x3A1), (0x3A3, 0x3C9), (0x1F00, 0x1F15)],
    "cyrillic": [(0x400, 0x4FF)],
    "armenian": [(0x531, 0x556), (0x561, 0x587)],
    "hebrew": [(0x5D0, 0x5EA), (0x5B0, 0x5BD)],
    "arabic": [(0x620, 0x64A), (0x64B, 0x652), (0x660, 0x669)],
    "devanagari": [(0x905, 0x939), (0x93E, 0x94D), (0x966, 0x96F)],
    "bengali": [(0x985, 0x9B9), (0x9BE, 0x9CD)],
    "tamil": [(0xB85, 0xBB9), (0xBBE, 0xBCD)],
    "thai": [(0xE01, 0xE3A), (0xE40, 0xE4E)],
    "georgian": [(0x10D0, 0x10F0)],
    "hangul": [(0xAC00, 0xD7A3), (0x1100, 0x1112)],
    "kana": [(0x3041, 0x3096), (0x30A1, 0x30FA), (0xFF66, 0xFF9D)],
    "chinese": [(0x4E00, 0x9FA5), (0x3400, 0x34FF), (0x20000, 0x200FF)],
    "ethiopic": [(0x1200, 0x1248)],
    "emoji": [(0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x1F900, 0x1F9FF), (0x2600, 0x26FF)],
    "symbols": [(0x2000, 0x206F), (0x20A0, 0x20BF), (0x2100, 0x214F), (0x2190, 0x22FF), (0x2460, 0x24FF), (0x3000, 0x303F), (0xFF01, 0xFF5E)],
    "ascii": [(0x20, 0x7E)],
    "digits": [(0x30, 0x39)],
    "controls": [(0x0, 0x9), (0xB, 0x1F), (0x7F, 0xA0), (0xAD, 0xAD), (0x200B, 0x200F), (0xFEFF, 0xFEFF), (0xFFFD, 0xFFFD), (0xE000, 0xE010)],
    "any": [(0x20, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF)],
}
EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇫🇷", "❤️", "1️⃣", "☺", "🧑🏿‍🚀"]
SPACES = [" ", "  ", "   ", "\t", "\u00a0", "\u3000", "\u2009", " \t ", "\r", "\v", "\u0085", "\u2028"]
SPECIALS = ["<s>", "</s>", "[MASK]", "[CLS]", "<|endoftext|>", "<extra_0>", "<0x0A>", "<unk>", " [MASK] ", "x<s>y", "newword", "Newword", "newwords"]
ENGLISH = ["don't", "I'll", "we've", "HE'S", "it's", "N'T", "x=1;", "1,234.5", "http://a.b/c?d=e", "f(x)", "ﬁne", "Straße", "İstanbul", "ΣΊΣΥΦΟΣ",
           "naïve", "café", "e\u0301te\u0301", "½", "①", "²", "Ǆ", "ŉ", "ﷺ", "한국어", "ｱｲｳ", "가", "क्षत्रिय", "नमस्ते"]


# The library's parts follow Unicode 8 to 17, and utf8proc and PCRE2 one version each: properties of newer characters differ, and characters whose
# class changed. Generated lines keep to characters of Unicode 3.2, and to those of the other ranges above.
CHANGED = {0x166D}


def word(rng, script):
    low_high = SCRIPTS[script]
    letters = []
    for _ in range(rng.randint(1, 9)):
        low, high = rng.choice(low_high)
        code = rng.randint(low, high)
        while code in CHANGED or (script == "any" and unicodedata.ucd_3_2_0.category(chr(code)) == "Cn"):
            low, high = rng.choice(low_high)
            code = rng.randint(low, high)
        letters.append(chr(code))
    return "".join(letters)


def generated_line(rng, vocabulary):
    parts = []
    scripts = [rng.choice(list(SCRIPTS)) for _ in range(rng.randint(1, 2))]
    for _ in range(rng.randint(0, 14)):
        pick = rng.random()
        if pick < 0.5:
            parts.append(word(rng, rng.choice(scripts)))
        elif pick < 0.75:
            parts.append(rng.choice(vocabulary))
        elif pick < 0.85:
            parts.append(rng.choice(ENGLISH))
        elif pick < 0.92:
            parts.append(rng.choice(EMOJI))
        else:
            parts.append(rng.choice(SPECIALS))
        parts.append(rng.choice(SPACES) if rng.random() < 0.35 else " " if rng.random() < 0.8 else "")
    return "".join(parts)


def usable(line):
    """A line as hark reads it: without a line feed, and without a carriage return at its end."""
    return line.replace("\n", " ").rstrip("\r")


def make_lines(count, seed):
    rng = random.Random(seed)
    texts = []
    for path in sorted(ROOT.glob("docs/**/*.md")) + sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("src/**/*.c")):
        texts += path.read_text(encoding="utf-8").split("\n")
    texts = [t for t in texts if t.strip()]
    vocabulary = " ".join(texts).split()
    own = [rng.choice(texts) for _ in range(count // 4)]
    lines = ["", " ", "  a", "a  ", "\t"] + own
    while len(lines) < count:
        lines.append(generated_line(rng, vocabulary))
    return texts, [usable(line) for line in lines[:count]]


# ---- the tokenizers ----

SMALL = False


def size(tokens):
    """Tokens to train; few for the tests of hark."""
    return min(tokens, 330) if SMALL else tokens


def gpt2(texts):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size(4000), special_tokens=["<|endoftext|>"], show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def roberta(texts):
    t = gpt2(texts)
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.add_special_tokens(["<s>", "</s>", AddedToken("[MASK]", lstrip=True)])
    t.add_tokens([AddedToken("newword", single_word=True), AddedToken("<extra_0>", rstrip=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    return t


def llama3(texts, pattern=CL100K):
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size(6000), special_tokens=["<s>", "</s>"], show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", 0)])])
    return t


def o200k(texts):
    return llama3(texts, O200K)


def with_bytes(t, change):
    """A BPE of characters with the tokens of 256 bytes after the special ones, and other members changed."""
    full = json.loads(t.to_str())
    specials = ["<unk>", "<s>", "</s>"]
    tokens = specials + [f"<0x{i:02X}>" for i in range(256)]
    tokens += [x for x in sorted(full["model"]["vocab"], key=full["model"]["vocab"].get) if x not in tokens and x != "\0"]
    full["model"].update(vocab={x: i for i, x in enumerate(tokens)}, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    full["added_tokens"] = [{"id": i, "content": x, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                            for i, x in enumerate(specials)]
    full.update(change)
    return Tokenizer.from_str(json.dumps(full))


LLAMA_DECODER = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                                                  {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


def plain_bpe(texts):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size(3000), limit_alphabet=300, show_progress=False, special_tokens=["<unk>"]))
    return t


def llama(texts):
    """No pre-tokenizer: a line is one word."""
    return with_bytes(plain_bpe(texts), {
        "pre_tokenizer": None, "decoder": LLAMA_DECODER,
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                                           {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}})


def mistral(texts):
    """Metaspace at the first word alone, undivided."""
    return with_bytes(plain_bpe(texts), {
        "normalizer": None, "decoder": LLAMA_DECODER,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}})


def gemma(texts):
    return with_bytes(plain_bpe(texts), {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, "decoder": LLAMA_DECODER,
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}})


def bert(texts, **settings):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(**settings)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=size(4000), show_progress=False, limit_alphabet=1500,
                                                            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    t.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)])
    return t


def bert_cased(texts):
    t = bert(texts, lowercase=False, strip_accents=False)
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t.add_tokens(["Newword", AddedToken("newword", single_word=True)])
    return t


def bert_accents(texts):
    t = bert(texts, lowercase=False, strip_accents=True, clean_text=False, handle_chinese_chars=False)
    t.decoder = decoders.WordPiece(cleanup=False)
    return t


def piece_model(texts, **settings):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=out, vocab_size=size(3000), character_coverage=0.999,
                                             minloglevel=2, hard_vocab_limit=False, **settings)
    return out.getvalue()


def charsmap(model):
    """normalizer_spec.precompiled_charsmap of a model."""

    def fields(data):
        at = 0

        def varint():
            nonlocal at
            value, shift = 0, 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value

        while at < len(data):
            tag = varint()
            if tag & 7 == 0:
                yield tag >> 3, varint()
            elif tag & 7 == 5:
                yield tag >> 3, data[at : at + 4]
                at += 4
            elif tag & 7 == 2:
                length = varint()
                yield tag >> 3, data[at : at + length]
                at += length

    normalizer = dict(fields(dict(fields(model))[3]))
    return normalizer[2]


def t5(texts):
    model = piece_model(texts, model_type="unigram")
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    vocabulary = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]
    t = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=False))
    t.normalizer = normalizers.Precompiled(charsmap(model))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.decoder = decoders.Metaspace()
    t.add_special_tokens(["</s>", "<extra_0>"])
    t.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", t.token_to_id("</s>"))])
    return t


def xlm(texts):
    t = t5(texts)
    full = json.loads(t.to_str())
    full["normalizer"] = {"type": "Sequence", "normalizers": [full["normalizer"], {"type": "Strip", "strip_left": False, "strip_right": True},
                                                              {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]}
    full["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
    return Tokenizer.from_str(json.dumps(full))


def unigram(texts):
    """Trained by the library; normalizers of Unicode."""
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(texts[:4000], trainers.UnigramTrainer(vocab_size=size(2000), unk_token="<unk>", special_tokens=["<unk>", "<s>"], show_progress=False))
    return t


def words(normalizer, pre, **more):
    def make(texts):
        t = Tokenizer(models.WordLevel(unk_token="<unk>"))
        t.normalizer = normalizer()
        t.pre_tokenizer = pre()
        t.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=size(8000), special_tokens=["<unk>", "<s>"], show_progress=False))
        t.add_tokens([AddedToken("newword", single_word=True, lstrip=True), AddedToken("Newwords", normalized=True)])
        for key, value in more.items():
            setattr(t, key, value)
        return t

    return make


def openai_gpt(texts):
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix=""))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.BPEDecoder()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size(3000), special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False,
                                                      limit_alphabet=300))
    return t


def prefixed(texts):
    t = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=False))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size(3000), special_tokens=["<unk>"], continuing_subword_prefix="##", show_progress=False,
                                                      limit_alphabet=300))
    return t


P, N = pre_tokenizers, normalizers
CASES = {
    "gpt2": gpt2,
    "roberta": roberta,
    "llama3": llama3,
    "o200k": o200k,
    "llama": llama,
    "mistral": mistral,
    "gemma": gemma,
    "bert": bert,
    "bert-cased": bert_cased,
    "bert-accents": bert_accents,
    "t5": t5,
    "xlm": xlm,
    "unigram": unigram,
    "openai-gpt": openai_gpt,
    "prefixed": prefixed,
    "words-nfc": words(N.NFC, lambda: P.Whitespace()),
    "words-nfd": words(lambda: N.Sequence([N.NFD(), N.StripAccents()]), lambda: P.Sequence([P.WhitespaceSplit(), P.Punctuation("contiguous")])),
    "words-nfkd": words(N.NFKD, lambda: P.Sequence([P.CharDelimiterSplit("e"), P.Digits(True), P.Punctuation("merged_with_next")])),
    "words-split": words(N.Lowercase, lambda: P.Sequence([P.Split(Regex(r"[\s\d]+|\h{2}"), "merged_with_previous"), P.Digits(False),
                                                          P.Split("a", "removed"), P.Split(Regex(r"\w+"), "contiguous", invert=True)]),
                         decoder=decoders.CTC("a", "b")),
    "words-replace": words(lambda: N.Sequence([N.Replace(Regex(r"\p{Ll}(?=\d)|^\s+|\W{2,}"), "xy"), N.Strip(True, False), N.Prepend("<")]),
                           lambda: P.Metaspace("_", prepend_scheme="never")),
    "words-bytes": words(N.ByteLevel, lambda: P.Split("Ġ", "merged_with_next"), decoder=decoders.ByteLevel()),
}
PIECES = {
    "sp-unigram": {"model_type": "unigram"},
    "sp-bpe": {"model_type": "bpe", "byte_fallback": True},
    "sp-llama": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                 "split_digits": True, "user_defined_symbols": "<extra_0>,newword"},
    "sp-fold": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc_cf", "byte_fallback": True, "add_dummy_prefix": False,
                "user_defined_symbols": "<extra_0>,newword"},
}


# ---- small cases for tests/tokenizers ----

PUBLISHED = ["gpt2", "roberta", "llama3", "llama", "mistral", "gemma", "bert", "bert-cased", "t5", "unigram", "openai-gpt", "prefixed", "words-nfd",
             "words-nfkd", "words-split", "words-replace", "words-bytes", "sp-unigram", "sp-llama", "sp-fold"]
PUBLISHED_TEXTS = ["the quick brown fox jumps over the lazy dog", "the cat sat on the mat, and the dog sat on the log", "it's what we've got; don't",
                   "Newword and newword: caf\u00e9, na\u00efve r\u00e9sum\u00e9s", "over 1234 dogs, 56 foxes; x=1", "привет мир, привет дом", "日本 日本語"] * 3
PUBLISHED_LINES = ["", " ", "the dog", "  the  dogs sat, didn't they? ", "newword Newwords x<s>y</s>", "caf\u00e9 cafe\u0301 \u0130 \u00df \ufb01 \u00bd",
                   "привет 日本語 \U0001f600\u200d\U0001f469", "a\tb\u00a0c\u3000d\u0085e\r\u0001f", "12345 x=1;  <extra_0> y [MASK] z", "\u2581the\u2581 <0x0A>",
                   "\u0915\u094d\u0937 \ufffd \U00020000\uac00", "the the the dogs sat on the mat on the log over the fox and the mat and the dog and it's lazy"]
RULES = "\n".join(f"{a}\t{b}" for a, b in [("A0", "20"), ("3000", "20"), ("9", "20"), ("65 301", "E9"), ("FB01", "66 69"), ("4E", "6E"), ("1", "")])


def c_parts(data):
    """Bytes as string literals of C, each shorter than compilers must accept, with the number of bytes."""
    parts, part, count = [], "", 0
    for byte in data:
        part += chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else "\\" + chr(byte) if byte in b'"\\' else f"\\{byte:03o}"
        count += 1
        if len(part) > 120:
            parts.append((part, count))
            part, count = "", 0
    return parts + [(part, count)]


def c_text(data):
    return "\n     ".join(f'"{part}"' for part, _ in c_parts(data))


def publish(path, folder):
    global SMALL
    SMALL = True
    out = [f"/* published_pipelines.h - small tokenizers, and what other programs make of some lines with them.",
           f" * Made by bench/peers/subwords.py with tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}; not to be changed by hand. */",
           "#ifndef HARK_TESTS_TOKENIZERS_PUBLISHED_PIPELINES_H", "#define HARK_TESTS_TOKENIZERS_PUBLISHED_PIPELINES_H", "", "/* clang-format off */",
           "typedef struct published_line {", "  const char *text, *decoded;", "  size_t bytes, decoded_bytes, count;", "  const int32_t *ids;", "} published_line;",
           "typedef struct published_part {", "  const char *text;", "  size_t bytes;", "} published_part;", "typedef struct published_pipeline {", "  const char *name;", "  const published_part *file; /* ended by a part without text */",
           "  size_t bytes; /* of the file */", "  const published_line *lines;", "} published_pipeline;", ""]
    names = []
    rules = folder / "rules.tsv"
    rules.write_text(RULES + "\n", encoding="utf-8")
    for name in PUBLISHED:
        if name in CASES:
            global piece_model
            kept = piece_model
            piece_model = lambda texts, **s: kept(texts, normalization_rule_tsv=str(rules), **s)  # noqa: E731
            t = Tokenizer.from_str(CASES[name](PUBLISHED_TEXTS).to_str())
            piece_model = kept
            data = json.dumps(json.loads(t.to_str()), separators=(",", ":"), ensure_ascii=False).encode()
            encode, decode = lambda x, t=t: t.encode(x).ids, lambda x, t=t: t.decode(x)
        else:
            settings = {k: v for k, v in PIECES[name].items() if k != "normalization_rule_name"}
            if name != "sp-llama":
                settings["normalization_rule_tsv"] = str(rules)
            else:
                settings["normalization_rule_name"] = "identity"
            data = piece_model(PUBLISHED_TEXTS, **settings)
            p = sentencepiece.SentencePieceProcessor(model_proto=data)
            encode, decode = lambda x, p=p: p.encode(x), lambda x, p=p: p.decode(x)
        short = name.replace("-", "_")
        names.append((name, short, len(data)))
        out += [f"static const published_part file_{short}[] = {{"] + [f'    {{"{part}", {count}}},' for part, count in c_parts(data)] + ["    {NULL, 0}};"]
        rows = []
        for i, line in enumerate(PUBLISHED_LINES):
            ids = encode(line)
            numbers = textwrap.fill(", ".join(map(str, ids)) or "0", 130, initial_indent="    ", subsequent_indent="    ")
            out.append(f"static const int32_t ids_{short}_{i}[] = {{\n{numbers}}};")
            text, back = line.encode(), decode(ids).encode()
            rows.append(f"    {{{c_text(text)},\n     {c_text(back)},\n     {len(text)}, {len(back)}, {len(ids)}, ids_{short}_{i}}},")
        out += [f"static const published_line lines_{short}[] = {{"] + rows + ["};", ""]
    out.append("static const published_pipeline published_pipelines[] = {")
    out += [f'    {{"{name}", file_{short}, {length}, lines_{short}}},' for name, short, length in names]
    out += ["};", f"enum {{ PUBLISHED_LINES = {len(PUBLISHED_LINES)} }};", "/* clang-format on */", "", "#endif", ""]
    path.write_text("\n".join(out), encoding="utf-8")


# ---- comparing ----


def run(hark, *words, **settings):
    made = subprocess.run([hark, *words], stdout=subprocess.PIPE, check=True, **settings)
    return made.stdout


def first_difference(name, what, lines, expected, got):
    wrong = [i for i in range(len(lines)) if expected[i] != got[i]]
    if wrong:
        i = wrong[0]
        print(f"{name}: {what}: {len(wrong)} of {len(lines)} lines differ; line {i + 1}: {lines[i]!r}\n  expected {expected[i]}\n  got      {got[i]}")
    return len(wrong)


def compare(name, hark, model, folder, lines, encode, decode):
    text, tokens = folder / "lines.txt", folder / f"{name}.jsonl"
    text.write_bytes("".join(line + "\n" for line in lines).encode())
    tokens.write_bytes(run(hark, "tokenize", model, text))
    got = [json.loads(line) for line in tokens.read_text(encoding="utf-8").splitlines()]
    expected = [encode(line) for line in lines]
    wrong = first_difference(name, "tokens", lines, expected, got)
    tokens.write_text("".join(json.dumps(ids) + "\n" for ids in expected), encoding="utf-8")
    back = run(hark, "detokenize", model, tokens).decode().split("\n")[:-1]
    texts = [decode(ids) for ids in expected]
    if len(back) != len(texts):
        print(f"{name}: {len(back)} texts, expected {len(texts)}")
        return wrong + 1
    wrong += first_difference(name, "text", lines, texts, back)
    same = sum(a == b for a, b in zip(texts, lines))
    print(f"{name}: {len(lines)} lines, {sum(map(len, expected))} tokens, {wrong} differences; {same} lines decode to themselves", flush=True)
    return wrong


# ---- vocabularies of hark ----

OWN = {
    "own-characters": ["characters"],
    "own-bytes": ["bytes"],
    "own-unigram": ["subwords", "--subwords", "8000", "--data.subwords.coverage", "0.98"],
    "own-bpe": ["subwords", "--subwords", "8000", "--data.subwords.coverage", "0.98", "--data.subwords.model", "bpe"],
    "own-bpe-plain": ["subwords", "--subwords", "8000", "--data.subwords.coverage", "0.98", "--data.subwords.model", "bpe",
                      "--no-data.subwords.byte-fallback", "--unknown", "map"],
    "own-byte-bpe": ["byte_bpe", "--subwords", "6000"],
}


def own(name, hark, folder, text):
    """Trains a vocabulary on a text; its file, and the same as a tokenizer.json."""
    source, run_folder, exported = folder / f"{name}.txt", folder / f"{name}-run", folder / f"{name}.json"
    source.write_bytes(text.encode())
    shutil.rmtree(run_folder, ignore_errors=True)
    run(hark, "train", "--out", run_folder, "--data", source, "--steps", "1", "--layers", "1", "--heads", "1", "--width", "8", "--context", "8",
        "--batch", "1", "--threads", "1", "--validation-fraction", "0.0001", "--tokenizer", *OWN[name], stderr=subprocess.DEVNULL)
    run(hark, "export", run_folder, "--format", "tokenizer.json", "--output", exported)
    return run_folder / "vocabulary.json", exported


def compare_own(name, hark, folder, text, lines):
    vocabulary, exported = own(name, hark, folder, text)
    t = Tokenizer.from_file(str(exported))
    wrong = compare(name, hark, exported, folder, lines, lambda x: t.encode(x).ids, lambda x: t.decode(x))
    known = run(hark, "tokenize", vocabulary, folder / "lines.txt", *(["--unknown", "map"] if name != "own-bytes" else [])).decode()
    got = [json.loads(line) for line in known.splitlines()]
    expected = [t.encode(x).ids for x in lines]
    vocabulary = json.loads(exported.read_text(encoding="utf-8"))["model"]["vocab"] if name == "own-unigram" else None
    ties = [i for i in range(len(lines)) if vocabulary and expected[i] != got[i] and is_tie(vocabulary, expected[i], got[i])]
    wrong += max(0, len(ties) - 10)  # so many are no accident
    if ties:
        print(f"{name}: {len(ties)} of {len(lines)} lines have two divisions whose sums are equal up to the rounding of f32")
    for i in ties:
        got[i] = expected[i]
    return wrong + first_difference(name, "tokens of its own vocabulary", lines, expected, got)


def is_tie(vocabulary, one, other):
    """hark sums the scores of its own unigram vocabularies in f32, as SentencePiece does, and the library in f64: two divisions of a part of
    a line may have sums that are equal up to the rounding of f32, 2^-24 of the sum for each addition and each score."""
    begin = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    end = next((i for i, (a, b) in enumerate(zip(reversed(one[begin:]), reversed(other[begin:]))) if a != b), min(len(one), len(other)) - begin)
    parts = [tokens[begin : len(tokens) - end] for tokens in (one, other)]
    if "".join(vocabulary[t][0] for t in parts[0]) != "".join(vocabulary[t][0] for t in parts[1]):
        return False
    sums = [math.fsum(vocabulary[token][1] for token in part) for part in parts]
    return abs(sums[0] - sums[1]) <= 2.0 * max(map(len, parts)) * 2.0**-24 * abs(sums[0])


def compare_merges(hark, folder, texts):
    wrong = 0
    for name, text in texts.items():
        _, exported = own("own-byte-bpe", hark, folder, text)
        ours = [tuple(pair) for pair in json.loads(exported.read_text(encoding="utf-8"))["model"]["merges"]]
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.train_from_iterator([text], trainers.BpeTrainer(vocab_size=256 + len(ours), show_progress=False, special_tokens=[],
                                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        theirs = [tuple(pair) for pair in json.loads(t.to_str())["model"]["merges"]]
        same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        print(f"own-byte-bpe: {name}: {len(ours)} merges, the library {len(theirs)}, the first {same} are the same", flush=True)
        wrong += ours != theirs
    return wrong


def best(repeats, call):
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def measure(name, hark, model, folder, lines, library, repeats):
    text, empty = folder / "speed.txt", folder / "empty.txt"
    text.write_bytes("".join(line + "\n" for line in lines).encode())
    empty.write_bytes(b"")
    size = text.stat().st_size / 1e6
    ours = best(repeats, lambda: run(hark, "tokenize", model, text)) - best(repeats, lambda: run(hark, "tokenize", model, empty))
    theirs = best(repeats, lambda: library(lines))
    print(f"{name}: hark {size / ours:.1f} MB/s, library {size / theirs:.1f} MB/s, ratio {theirs / ours:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hark", default="build/hark")
    parser.add_argument("--folder", default="build/peers/tokenizers")
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="names of cases, with commas between them")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--published", help="write the small cases of tests/tokenizers to this file, and nothing else")
    parser.add_argument("--repeats", type=int, default=5)
    a = parser.parse_args()
    folder = Path(a.folder)
    folder.mkdir(parents=True, exist_ok=True)
    if a.published:
        publish(Path(a.published), folder)
        return 0
    print(f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}")
    texts, lines = make_lines(a.lines, a.seed)
    only = [x for x in a.only.split(",") if x]
    wrong = 0
    for name, make in CASES.items():
        if only and name not in only:
            continue
        model = folder / f"{name}.json"
        t = make(texts)
        t.save(str(model))
        t = Tokenizer.from_file(str(model))  # what is read, which may differ from what was trained
        wrong += compare(name, a.hark, model, folder, lines, lambda x, t=t: t.encode(x).ids, lambda x, t=t: t.decode(x))
        if a.speed:
            measure(name, a.hark, model, folder, texts, lambda x, t=t: t.encode_batch_fast(x), a.repeats)
    for name, settings in PIECES.items():
        if only and name not in only:
            continue
        model = folder / f"{name}.model"
        data = piece_model(texts, **settings)
        model.write_bytes(data)
        p = sentencepiece.SentencePieceProcessor(model_proto=data)
        wrong += compare(name, a.hark, model, folder, lines, lambda x, p=p: p.encode(x), lambda x, p=p: p.decode(x))
        if a.speed:
            measure(name, a.hark, model, folder, texts, lambda x, p=p: p.encode(x, num_threads=1), a.repeats)
    text = "\n".join(texts + lines[1::2]).replace("\0", "") + "\n"  # a vocabulary with U+0000 has no counterpart
    for name in OWN:
        if not only or name in only:
            wrong += compare_own(name, a.hark, folder, text, lines)
    if not only or "own-byte-bpe" in only:
        code = "".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("src/**/*.c")))
        prose = "".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/**/*.md")))
        wrong += compare_merges(a.hark, folder, {"code": code, "prose": prose, "scripts": "\n".join(lines), "all": text})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
