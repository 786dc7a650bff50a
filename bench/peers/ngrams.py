"""What counts of neighbouring tokens predict: interpolated n-grams with absolute discounting, for comparison with trained language models.

    hark tokenize RUN sentences.txt > tokens.jsonl          a list of tokens a line, each line a sentence
    ngrams.py tokens.jsonl [--tokens 1e6] [--held-out 0.1] [--seeds 3]

A tenth of the sentences, drawn with a seed, is held out; the others are counted until there are --tokens of them (0: all), the end of a sentence
being a token. p(w | a b) = (max(n(a b w) - D, 0) + D types(a b) p(w | b)) / n(a b), D = 0.75, down to the unigram and equal probabilities. One
line of JSON an order: mean nats a token over the held-out tokens and seeds.
"""

import argparse
import json
import math
import random
from collections import Counter

DISCOUNT = 0.75
END = -1


class Counts:
    """Counts of one order, its contexts' totals and numbers of types."""

    def __init__(self, grams):
        self.grams = grams
        self.totals, self.types = Counter(), Counter()
        for gram, count in grams.items():
            self.totals[gram[:-1]] += count
            self.types[gram[:-1]] += 1

    def probability(self, gram, shorter):
        total = self.totals[gram[:-1]]
        if total == 0:
            return shorter
        return (max(self.grams[gram] - DISCOUNT, 0) + DISCOUNT * self.types[gram[:-1]] * shorter) / total


def grams_of(sentence, order):
    padded = [END] * (order - 1) + sentence + [END]
    return (tuple(padded[i : i + order]) for i in range(len(sentence) + 1))


def count(sentences, orders):
    return [Counts(Counter(gram for s in sentences for gram in grams_of(s, order))) for order in range(1, orders + 1)]


def losses(counts, sentences, vocabulary):
    """Mean nats a token of every order."""
    sums, tokens = [0.0] * len(counts), 0
    for sentence in sentences:
        for grams in zip(*(grams_of(sentence, order) for order in range(1, len(counts) + 1))):
            p = 1 / vocabulary
            tokens += 1
            for i, gram in enumerate(grams):
                p = counts[i].probability(gram, p)
                sums[i] -= math.log(p)
    return [s / tokens for s in sums]


def first_tokens(sentences, limit):
    taken, tokens = [], 0
    for sentence in sentences:
        if limit and tokens >= limit:
            break
        taken.append(sentence)
        tokens += len(sentence) + 1
    return taken, tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--tokens", type=float, default=0, help="tokens that are counted; 0: all (0)")
    parser.add_argument("--held-out", type=float, default=0.1, help="share of the sentences (0.1)")
    parser.add_argument("--seeds", type=int, default=3, help="divisions (3)")
    parser.add_argument("--orders", type=int, default=3, help="longest n-gram (3)")
    a = parser.parse_args()
    with open(a.file, encoding="ascii") as file:
        sentences = [json.loads(line) for line in file]
    vocabulary = len({token for s in sentences for token in s}) + 1
    results = []
    for seed in range(1, a.seeds + 1):
        mixed = sentences[:]
        random.Random(seed).shuffle(mixed)
        cut = round(len(mixed) * (1 - a.held_out))
        taken, tokens = first_tokens(mixed[:cut], a.tokens)
        results.append(losses(count(taken, a.orders), mixed[cut:], vocabulary))
    for order, values in enumerate(zip(*results), 1):
        print(json.dumps({"baseline": f"{order}-gram", "loss": round(sum(values) / len(values), 4), "tokens": tokens, "seeds": a.seeds}))


if __name__ == "__main__":
    main()
