"""What labelled examples give away without any attention: the largest class, counts of symbols, places of symbols, words.

    baselines.py text TRAINING.tsv TEST.tsv [--length 1000]
    baselines.py image TRAINING.bin[,MORE.bin...] TEST.bin
    baselines.py pathfinder TRAINING.bin TEST.bin
    baselines.py listops TRAINING.tsv TEST.tsv
    baselines.py labels TRAINING.tsv TEST.tsv [--window 16]
    baselines.py few TRAINING.tsv [--length 256] [--examples 100,300,1000]      few labelled texts; 2,000 others of the file are the test

Files are those of `hark data` (docs/tasks.md). Every classifier is scikit-learn's logistic regression; its strength of regularisation is chosen on a
tenth of the training examples, which then join the others. One line of JSON a baseline: accuracy on the test examples.

    majority     the most frequent class of the training examples
    histogram    how often each byte, grey value or symbol occurs in an example
    linear       a weight for each pixel and class (image, pathfinder)
    bag          labels only: how often each word occurs in the whole sequence
    window       labels only: the word at each of the last --window places, up to the labelled word
    length       the number of bytes or symbols
    words        text only: tf-idf of words, and of pairs of words, in the whole text, whatever --length is
"""

import argparse
import json
import sys

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)
CIFAR_RECORD = 1 + 3 * 1024
IMAGES_HEADER = 32
FEW_TEST = 2000
LABELS = 20000  # labels of each part that are used, of hundreds of thousands that resemble each other


def read_lines(path):
    """Label and text of every line `label<TAB>text`."""
    labels, texts = [], []
    with open(path, "rb") as file:
        for line in file:
            label, _, text = line.rstrip(b"\r\n").partition(b"\t")
            labels.append(int(float(label)))
            texts.append(text)
    return np.array(labels), texts


def read_listops(path):
    """Value and symbols of every line `expression<TAB>value`, after the header, without parentheses."""
    labels, expressions = [], []
    with open(path, encoding="ascii") as file:
        next(file)
        for line in file:
            expression, _, value = line.rstrip("\n").rpartition("\t")
            labels.append(int(value))
            expressions.append([word for word in expression.split() if word not in "()"])
    return np.array(labels), expressions


def read_labelled(path):
    """Words and {place: label} of every line `words<TAB>place:label ...`, after the header."""
    sequences, targets = [], []
    with open(path, encoding="ascii") as file:
        next(file)
        for line in file:
            words, _, answers = line.rstrip("\n").partition("\t")
            sequences.append(words.split())
            targets.append({int(place): label for place, label in (answer.split(":") for answer in answers.split())})
    return sequences, targets


def read_cifar(paths):
    records = np.concatenate([np.fromfile(path, np.uint8).reshape(-1, CIFAR_RECORD) for path in paths.split(",")])
    return records[:, 0].astype(int), records[:, 1:1025]  # three planes alike


def read_images(path):
    with open(path, "rb") as file:
        header = file.read(IMAGES_HEADER)
        height, width = np.frombuffer(header[12:20], "<u4")
        records = np.frombuffer(file.read(), np.uint8).reshape(-1, 1 + int(height) * int(width))
    return records[:, 0].astype(int), records[:, 1:]


def counts_of_bytes(texts):
    return np.stack([np.bincount(np.frombuffer(text, np.uint8), minlength=256) for text in texts]).astype(float)


def counts_of_symbols(expressions):
    symbols = sorted({symbol for expression in expressions for symbol in expression})
    place = {symbol: i for i, symbol in enumerate(symbols)}
    out = np.zeros((len(expressions), len(symbols)))
    for i, expression in enumerate(expressions):
        np.add.at(out[i], [place[symbol] for symbol in expression], 1)
    return out


def counts_of_grey(images):
    return np.stack([np.bincount(image, minlength=256) for image in images]).astype(float)


def classify(name, training, labels, test, test_labels):
    """Chooses the strength, fits all training examples, prints the accuracy on the test examples."""
    if not sparse.issparse(training):
        scale = StandardScaler().fit(training)
        training, test = scale.transform(training), scale.transform(test)
    order = np.random.default_rng(1).permutation(len(labels))
    held, rest = order[: len(order) // 10], order[len(order) // 10 :]

    def fit(strength, rows):
        return LogisticRegression(C=strength, max_iter=300).fit(training[rows], labels[rows])

    strength = max(STRENGTHS, key=lambda c: fit(c, rest).score(training[held], labels[held]))
    report(name, fit(strength, order).score(test, test_labels), strength=strength, features=training.shape[1])


def report(name, accuracy, **more):
    print(json.dumps({"baseline": name, "test/accuracy": round(float(accuracy), 4), **more}), flush=True)


def majority(labels, test_labels):
    report("majority", np.mean(test_labels == np.bincount(labels).argmax()))


def text(a):
    labels, texts = read_lines(a.training)
    test_labels, test = read_lines(a.test)
    cut, test_cut = [t[: a.length] for t in texts], [t[: a.length] for t in test]
    majority(labels, test_labels)
    classify("length", np.array([[len(t)] for t in cut], float), labels, np.array([[len(t)] for t in test_cut], float), test_labels)
    classify("histogram", counts_of_bytes(cut), labels, counts_of_bytes(test_cut), test_labels)
    for name, pair, length in (("words, cut", 1, a.length), ("words", 1, None), ("words and pairs", 2, None)):
        words = TfidfVectorizer(ngram_range=(1, pair), min_df=2, sublinear_tf=True)
        seen = words.fit_transform([t[:length].decode("utf-8", "replace") for t in texts])
        classify(name, seen, labels, words.transform([t[:length].decode("utf-8", "replace") for t in test]), test_labels)


def few(a):
    labels, texts = read_lines(a.training)
    cut = [t[: a.length] for t in texts]
    for count in map(int, a.examples.split(",")):
        for seed in (1, 2, 3):
            order = np.random.default_rng(seed).permutation(len(labels))
            test, training = order[:FEW_TEST], order[FEW_TEST : FEW_TEST + count]
            print(json.dumps({"examples": count, "seed": seed}), flush=True)
            majority(labels[training], labels[test])
            histograms = [counts_of_bytes([cut[i] for i in part]) for part in (training, test)]
            classify("histogram", histograms[0], labels[training], histograms[1], labels[test])
            words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
            seen = words.fit_transform([cut[i].decode("utf-8", "replace") for i in training])
            classify("words and pairs, cut", seen, labels[training], words.transform([cut[i].decode("utf-8", "replace") for i in test]), labels[test])


def images(read):
    def run(a):
        labels, training = read(a.training)
        test_labels, test = read(a.test)
        majority(labels, test_labels)
        classify("histogram", counts_of_grey(training), labels, counts_of_grey(test), test_labels)
        classify("linear", training.astype(np.float32), labels, test.astype(np.float32), test_labels)

    return run


def listops(a):
    labels, training = read_listops(a.training)
    test_labels, test = read_listops(a.test)
    majority(labels, test_labels)
    classify("length", np.array([[len(e)] for e in training], float), labels, np.array([[len(e)] for e in test], float), test_labels)
    both = counts_of_symbols(training + test)
    classify("histogram", both[: len(training)], labels, both[len(training) :], test_labels)
    first = [[e[0], e[0] + e[1]] for e in training + test]  # the outermost operator decides what is likely
    both = counts_of_symbols(first)
    classify("first operator", both[: len(training)], labels, both[len(training) :], test_labels)


def places_of_labels(targets, limit):
    """(sequence, place) of at most `limit` labels, drawn without replacement."""
    places = [(i, place) for i, answers in enumerate(targets) for place in answers]
    order = np.random.default_rng(1).permutation(len(places))[:limit]
    return [places[i] for i in order]


def one_of_each(rows, columns):
    """A sparse matrix with a column for each word or pair in `columns` and the number of its occurrences in every row."""
    entries = [(i, columns[item]) for i, row in enumerate(rows) for item in row if item in columns]
    where = tuple(np.array(entries).T)
    return sparse.csr_matrix((np.ones(len(entries)), where), shape=(len(rows), len(columns)))


def labels(a):
    parts = [(sequences, targets, places_of_labels(targets, LABELS)) for sequences, targets in map(read_labelled, (a.training, a.test))]
    names = {label: i for i, label in enumerate(sorted({label for answers in parts[0][1] for label in answers.values()}))}
    answers, test_answers = (np.array([names[targets[i][place]] for i, place in places]) for _, targets, places in parts)
    majority(answers, test_answers)
    features = {
        "bag": lambda words, place: words,
        "window": lambda words, place: [(place - at, words[at]) for at in range(max(0, place - a.window + 1), place + 1)],
    }
    for name, of in features.items():
        rows, test_rows = ([of(sequences[i], place) for i, place in places] for sequences, _, places in parts)
        columns = {item: i for i, item in enumerate(sorted({item for row in rows for item in row}))}
        classify(name, one_of_each(rows, columns), answers, one_of_each(test_rows, columns), test_answers)


TASKS = {"few": few, "labels": labels, "text": text, "image": images(read_cifar), "pathfinder": images(read_images), "listops": listops}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("training")
    parser.add_argument("test", nargs="?")
    parser.add_argument("--length", type=int, default=1000, help="bytes of a text that count (1000)")
    parser.add_argument("--window", type=int, default=16, help="words that the window of labels sees (16)")
    parser.add_argument("--examples", default="100,300,1000,3000,10000", help="numbers of labelled texts of few (100,300,1000,3000,10000)")
    a = parser.parse_args()
    if a.test is None and a.task != "few":
        parser.error("a file of test examples is missing")
    TASKS[a.task](a)


if __name__ == "__main__":
    sys.exit(main())
