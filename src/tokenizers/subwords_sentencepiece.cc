/* subwords_sentencepiece.cc - pieces learned by SentencePiece (Kudo and Richardson, arXiv 1808.06226), for programs that are linked with
 * it.
 *
 * Its trainer gets distinct words with their counts instead of the text. This makes no difference, because the trainer counts words first.
 * Nothing is normalised; internally a space is U+2581. With one thread and nothing drawn at random, the same words give the same pieces.
 * Its output is switched off, and no exception leaves this file.
 */
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <unordered_map>

#include "tokenizers/subwords.h"

namespace {

const char kSpace[] = "\xE2\x96\x81";        // U+2581
const char kUnknownPiece[] = "\xE2\x96\x85"; // U+2585, in no word
const size_t kMarkBytes = 3;

// The words of a job as lines "word<TAB>count".
class Words : public sentencepiece::SentenceIterator {
 public:
  explicit Words(const hark_subword_job *job) : job_(job) { Read(); }
  bool done() const override { return word_ >= job_->words; }
  void Next() override {
    word_++;
    Read();
  }
  const std::string &value() const override { return line_; }
  sentencepiece::util::Status status() const override { return sentencepiece::util::Status(); }

 private:
  void Read() {
    if (Words::done()) return;
    const size_t from = job_->at[word_];
    line_.assign(job_->text + from, job_->at[word_ + 1] - from);
    line_ += '\t';
    line_ += std::to_string(job_->count[word_]);
  }

  const hark_subword_job *job_;
  size_t word_ = 0;
  std::string line_;
};

std::string WithSpaces(const std::string &piece) {
  std::string text = piece;
  for (size_t at = 0; (at = text.find(kSpace, at)) != std::string::npos; at++) text.replace(at, kMarkBytes, " ");
  return text;
}

std::string Number(double value) {
  // Digits alone, whatever the locale's decimal point is: coverage is in (0, 1].
  if (value >= 1) return "1.0";
  char digits[32];
  std::snprintf(digits, sizeof digits, "%015.0f", value * 1e15);
  return std::string("0.") + digits;
}

hark_status Fail(hark_status status, const std::string &text, char *message) {
  // The first line, without the place in SentencePiece's own source: "file.cc(123) [condition] what".
  std::string what = text.substr(0, text.find('\n'));
  const size_t place = what.find("] ");
  if (place != std::string::npos && place + 2 < what.size()) what = what.substr(place + 2);
  std::snprintf(message, HARK_SUBWORD_MESSAGE_BYTES, "%s", what.c_str());
  return status;
}

// The number after `before`, or -1.
long long NumberAfter(const std::string &text, const char *before) {
  const size_t at = text.find(before);
  return at == std::string::npos ? -1 : std::atoll(text.c_str() + at + std::strlen(before));
}

// SentencePiece counts its pieces and the unknown one; its bounds are converted to the size of the whole vocabulary.
std::string BoundOf(const std::string &what, const hark_subword_job *job) {
  const long long most = NumberAfter(what, " <= "), least = NumberAfter(what, " vs "), others = job->others - 1;
  if (what.find("too high") != std::string::npos && most > 0)
    return "the text gives " + std::to_string(most + others) + " at most (--subwords " + std::to_string(most + others) + ")";
  if (what.find("required_chars") != std::string::npos && least > 0)
    return "expected at least " + std::to_string(least + others) + ", since characters are pieces too (--subwords " +
           std::to_string(least + others) + "), or a lower data.subwords.coverage";
  return what;
}

hark_status Train(const hark_subword_job *job, std::string *model, char *message) {
  // One piece more, for the unknown.
  const std::unordered_map<std::string, std::string> options = {{"model_type", job->model == HARK_SUBWORD_BPE ? "bpe" : "unigram"},
                                                                {"vocab_size", std::to_string(job->pieces + 1)},
                                                                {"character_coverage", Number(job->coverage)},
                                                                {"input_format", "tsv"},
                                                                {"normalization_rule_name", "identity"},
                                                                {"add_dummy_prefix", "false"},
                                                                {"remove_extra_whitespaces", "false"},
                                                                {"unk_id", "0"},
                                                                {"bos_id", "-1"},
                                                                {"eos_id", "-1"},
                                                                {"pad_id", "-1"},
                                                                {"unk_piece", kUnknownPiece},
                                                                {"num_threads", "1"},
                                                                {"minloglevel", "3"}};
  Words words(job);
  const sentencepiece::util::Status status = sentencepiece::SentencePieceTrainer::Train(options, &words, model);
  return status.ok() ? HARK_OK : Fail(HARK_BAD_CONFIGURATION, BoundOf(status.error_message(), job), message);
}

hark_status Give(const std::string &model, hark_subword_sink *sink, void *user, char *message) {
  sentencepiece::SentencePieceProcessor processor;
  const sentencepiece::util::Status status = processor.LoadFromSerializedProto(model);
  if (!status.ok()) return Fail(HARK_INTERNAL_ERROR, status.error_message(), message);
  for (int i = 0; i < processor.GetPieceSize(); i++) {
    if (processor.IsUnknown(i) || processor.IsControl(i)) continue;
    const std::string text = WithSpaces(processor.IdToPiece(i));
    const hark_status given = sink(user, text.data(), text.size(), processor.GetScore(i));
    if (given != HARK_OK) return given;
  }
  return HARK_OK;
}

hark_status Learn(const hark_subword_job *job, hark_subword_sink *sink, void *user, char message[HARK_SUBWORD_MESSAGE_BYTES]) {
  try {
    std::string model;
    const hark_status status = Train(job, &model, message);
    return status == HARK_OK ? Give(model, sink, user, message) : status;
  } catch (const std::bad_alloc &) {
    return Fail(HARK_OUT_OF_MEMORY, "out of memory", message);
  } catch (const std::exception &error) {
    return Fail(HARK_INTERNAL_ERROR, error.what(), message);
  }
}

} // namespace

const hark_subword_learner hark_subword_sentencepiece = {"SentencePiece", Learn};
